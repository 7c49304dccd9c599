//! What was measured at each size.

use std::time::Duration;

use serde::Serialize;

/// One chart: lines over a common horizontal axis.
#[derive(Debug, Serialize)]
pub struct Growth {
    /// A part of the file's name.
    pub name: &'static str,
    pub title: &'static str,
    pub x: &'static str,
    pub y: &'static str,
    pub lines: Vec<Line>,
}

#[derive(Debug, Serialize)]
pub struct Line {
    pub name: &'static str,
    pub points: Vec<Point>,
}

/// The median of the samples at one size, and their extremes.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Point {
    pub x: f64,
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

impl Growth {
    pub fn new(
        name: &'static str,
        title: &'static str,
        [x, y]: [&'static str; 2],
        lines: impl IntoIterator<Item = &'static str>,
    ) -> Self {
        let lines = lines.into_iter().map(|name| Line { name, points: Vec::new() }).collect();
        Self { name, title, x, y, lines }
    }

    /// Adds a point to each line, in their order.
    pub fn add(&mut self, x: f64, samples: impl IntoIterator<Item = Vec<f64>>) {
        for (line, mut values) in self.lines.iter_mut().zip(samples) {
            values.sort_by(f64::total_cmp);
            let (Some(&least), Some(&most)) = (values.first(), values.last()) else { continue };
            line.points.push(Point { x, median: values[values.len() / 2], least, most });
        }
    }
}

pub fn ms(samples: &[Duration]) -> Vec<f64> {
    samples.iter().map(|sample| sample.as_secs_f64() * 1e3).collect()
}
