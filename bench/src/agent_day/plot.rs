//! The picture: for each command, how many times as long as on the host it took in a used sandbox, on a logarithmic
//! scale. A line goes from the second time to the first time in a fresh sandbox.

use std::fmt::Write;

use super::day::{Day, Phase};

const LEFT: f64 = 380.0;
const WIDTH: f64 = 520.0;
const ROW: f64 = 22.0;
const TOP: f64 = 60.0;
const LONGEST_LABEL: usize = 52;
/// The scale, as ratios.
const LEAST: f64 = 0.1;
const MOST: f64 = 100.0;
const MARKS: [f64; 7] = [0.1, 0.5, 1.0, 2.0, 6.0, 20.0, 100.0];

pub fn svg(day: &Day) -> String {
    let height = TOP + ROW * (day.commands.len() as f64 + 2.0);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"10\" y=\"20\" font-size=\"15\">A coding agent's commands: time divided by the host's ({})</text>\n\
         <text x=\"10\" y=\"38\" fill=\"#666\">dot: second time in a used sandbox; line: to the first time in a fresh one</text>\n",
        LEFT + WIDTH + 40.0,
        day.host.get("accelerator").map_or("", String::as_str),
    );
    for mark in MARKS {
        let x = place(mark);
        let _ = writeln!(
            text,
            "<line x1=\"{x}\" y1=\"{TOP}\" x2=\"{x}\" y2=\"{}\" stroke=\"#ddd\"/><text x=\"{x}\" y=\"{}\" text-anchor=\"middle\" fill=\"#666\">{mark}</text>",
            height - ROW,
            height - 6.0
        );
    }
    for (command, line) in day.commands.iter().enumerate() {
        let y = TOP + ROW * (command as f64 + 0.5);
        let label: String = line.chars().take(LONGEST_LABEL).collect();
        let label = label.replace('&', "&amp;").replace('<', "&lt;");
        let _ = writeln!(text, "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{label}</text>", LEFT - 8.0, y + 4.0);
        for (name, colour) in
            [("bwrap", "#9aa5b1"), ("runsc", "#c98a2b"), ("podman", "#6b7fc9"), ("sandling", "#2a7f62")]
        {
            let ratio = |phase| Some(day.time(command, name, phase)? / day.time(command, "host", phase)?);
            let (Some(later), Some(first)) = (ratio(Phase::UsedSecond), ratio(Phase::FreshFirst)) else { continue };
            let (from, to) = (place(later), place(first));
            let _ = writeln!(
                text,
                "<line x1=\"{from}\" y1=\"{y}\" x2=\"{to}\" y2=\"{y}\" stroke=\"{colour}\"/>\
                 <circle cx=\"{from}\" cy=\"{y}\" r=\"4\" fill=\"{colour}\"><title>{name}: {later:.1}</title></circle>"
            );
        }
    }
    text + "</svg>\n"
}

fn place(ratio: f64) -> f64 {
    let part = (ratio.clamp(LEAST, MOST) / LEAST).log10() / (MOST / LEAST).log10();
    LEFT + WIDTH * part
}
