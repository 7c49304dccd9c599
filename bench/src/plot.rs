//! The picture: a bar to p50 and a whisker to p99 for each figure, on a logarithmic scale.

use std::fmt::Write;

use crate::report::{Figure, Report};

const LEFT: f64 = 400.0;
const WIDTH: f64 = 520.0;
const ROW: f64 = 30.0;
/// The scale runs from here to ten thousand milliseconds.
const LEAST_MS: f64 = 0.1;
const DECADES: f64 = 5.0;

pub fn svg(report: &Report) -> String {
    let height = ROW * (report.figures.len() as f64 + 3.0);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"10\" y=\"20\" font-size=\"15\">Milliseconds, bar: p50, line: p99 ({})</text>\n",
        LEFT + WIDTH + 90.0,
        report.host.get("accelerator").map_or("", String::as_str),
    );
    for decade in 0..=5 {
        let (x, label) = (place(LEAST_MS * 10f64.powi(decade)), LEAST_MS * 10f64.powi(decade));
        let _ = writeln!(
            text,
            "<line x1=\"{x}\" y1=\"30\" x2=\"{x}\" y2=\"{}\" stroke=\"#ddd\"/><text x=\"{x}\" y=\"{}\" text-anchor=\"middle\" fill=\"#666\">{label}</text>",
            height - ROW,
            height - 10.0
        );
    }
    for (index, figure) in report.figures.iter().enumerate() {
        row(&mut text, figure, ROW * (index as f64 + 1.5));
    }
    text + "</svg>\n"
}

fn row(text: &mut String, figure: &Figure, y: f64) {
    let colour = if figure.who == "sandling" { "#2a7f62" } else { "#9aa5b1" };
    let (middle, end) = (place(figure.p50_ms), place(figure.p99_ms));
    let line = y + ROW / 2.0;
    let _ = writeln!(
        text,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}: {}</text>\
         <rect x=\"{LEFT}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{colour}\"/>\
         <line x1=\"{middle}\" y1=\"{line}\" x2=\"{end}\" y2=\"{line}\" stroke=\"#333\"/>\
         <text x=\"{}\" y=\"{}\">{:.1}</text>",
        LEFT - 8.0,
        line + 4.0,
        figure.who,
        figure.name.replace('&', "&amp;").replace('<', "&lt;"),
        y + 6.0,
        (middle - LEFT).max(1.0),
        ROW - 12.0,
        end + 6.0,
        line + 4.0,
        figure.p50_ms
    );
}

fn place(ms: f64) -> f64 {
    let decades = (ms.max(LEAST_MS) / LEAST_MS).log10();
    LEFT + WIDTH * (decades / DECADES).min(1.0)
}
