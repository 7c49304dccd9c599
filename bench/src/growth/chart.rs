//! A line chart: medians as a line with dots, extremes as whiskers.

use std::fmt::Write;

use super::series::{Growth, Line};

const SIZE: (f64, f64) = (640.0, 360.0);
const LEFT: f64 = 70.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 70.0;
const BOTTOM: f64 = 55.0;
/// As many marks as fit on an axis.
const MARKS: f64 = 6.0;
const COLOURS: [&str; 3] = ["#2a7f62", "#c98a2b", "#6b7fc9"];

pub fn svg(growth: &Growth) -> String {
    let points = || growth.lines.iter().flat_map(|line| &line.points);
    let axes = Axes {
        x: round_up(points().map(|point| point.x).fold(0.0, f64::max)),
        y: round_up(points().map(|point| point.most).fold(0.0, f64::max)),
    };
    let (width, height) = SIZE;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"15\" y=\"24\" font-size=\"15\">{}</text>\n",
        growth.title
    );
    axes.draw(&mut text, growth);
    for (index, line) in growth.lines.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        axes.draw_line(&mut text, line, colour);
        let x = LEFT + 190.0 * index as f64;
        let _ = writeln!(
            text,
            "<circle cx=\"{x}\" cy=\"46\" r=\"4\" fill=\"{colour}\"/><text x=\"{}\" y=\"50\">{}</text>",
            x + 10.0,
            line.name
        );
    }
    text + "</svg>\n"
}

/// Where the axes end.
struct Axes {
    x: f64,
    y: f64,
}

impl Axes {
    fn place(&self, x: f64, y: f64) -> (f64, f64) {
        let (width, height) = (SIZE.0 - LEFT - RIGHT, SIZE.1 - TOP - BOTTOM);
        (LEFT + width * x / self.x, SIZE.1 - BOTTOM - height * y / self.y)
    }

    fn draw(&self, text: &mut String, growth: &Growth) {
        let ((left, bottom), (right, top)) = (self.place(0.0, 0.0), self.place(self.x, self.y));
        for value in marks(self.y) {
            let y = self.place(0.0, value).1;
            let _ = writeln!(
                text,
                "<line x1=\"{left}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#666\">{value}</text>",
                left - 6.0,
                y + 4.0
            );
        }
        for value in marks(self.x) {
            let x = self.place(value, 0.0).0;
            let _ = writeln!(
                text,
                "<line x1=\"{x:.1}\" y1=\"{bottom}\" x2=\"{x:.1}\" y2=\"{}\" stroke=\"#999\"/>\
                 <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#666\">{value}</text>",
                bottom + 4.0,
                bottom + 18.0
            );
        }
        let (middle, across) = ((left + right) / 2.0, (top + bottom) / 2.0);
        let _ = writeln!(
            text,
            "<line x1=\"{left}\" y1=\"{bottom}\" x2=\"{right}\" y2=\"{bottom}\" stroke=\"#999\"/>\
             <text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>\
             <text x=\"18\" y=\"{across}\" text-anchor=\"middle\" transform=\"rotate(-90 18 {across})\">{}</text>",
            bottom + 38.0,
            growth.x,
            growth.y
        );
    }

    fn draw_line(&self, text: &mut String, line: &Line, colour: &str) {
        let mut path = String::new();
        for point in &line.points {
            let (x, y) = self.place(point.x, point.median);
            let (least, most) = (self.place(point.x, point.least).1, self.place(point.x, point.most).1);
            let _ = write!(path, "{x:.1},{y:.1} ");
            let _ = writeln!(
                text,
                "<line x1=\"{x:.1}\" y1=\"{least:.1}\" x2=\"{x:.1}\" y2=\"{most:.1}\" stroke=\"{colour}\" opacity=\"0.5\"/>\
                 <circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"><title>{:.1}</title></circle>",
                point.median
            );
        }
        let _ = writeln!(text, "<polyline points=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>");
    }
}

/// The distance of two marks: 1, 2 or 5 times a power of ten.
fn step(largest: f64) -> f64 {
    let rough = largest.max(f64::MIN_POSITIVE) / MARKS;
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|step| *step >= rough).unwrap_or(power)
}

fn round_up(largest: f64) -> f64 {
    (largest / step(largest)).ceil().max(1.0) * step(largest)
}

fn marks(end: f64) -> impl Iterator<Item = f64> {
    let step = step(end);
    (0..=(end / step).round() as u32).map(move |number| f64::from(number) * step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_ends_at_a_mark_that_covers_everything() {
        for largest in [0.7, 3.0, 9.9, 100.0, 2048.0, 3001.0] {
            let end = round_up(largest);
            let all: Vec<f64> = marks(end).collect();
            assert!(end >= largest && (3..=8).contains(&all.len()), "{largest}: {all:?}");
            assert!((all[all.len() - 1] - end).abs() < 1e-9, "{largest}: {all:?}");
        }
    }

    #[test]
    fn every_point_lies_within_the_picture() {
        let mut growth = Growth::new("a", "A", ["x", "y"], ["one", "two"]);
        growth.add(1.0, [vec![1.0, 9.0, 2.0], vec![3.0]]);
        growth.add(7.0, [vec![4.0], vec![5.0]]);
        assert_eq!((growth.lines[0].points[0].median, growth.lines[0].points[0].most), (2.0, 9.0));
        let text = svg(&growth);
        assert_eq!(text.matches("<circle").count(), 4 + 2);
        let xs = text.split("<circle cx=\"").skip(1).filter_map(|rest| rest.split('"').next()?.parse().ok());
        let xs: Vec<f64> = xs.collect();
        assert!(xs.len() == 6 && xs.iter().all(|x| (0.0..=SIZE.0).contains(x)), "{text}");
    }
}
