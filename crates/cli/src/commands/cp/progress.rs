//! A progress bar, shown on a terminal once a copy has taken a few seconds.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

const SHOWN_AFTER: Duration = Duration::from_secs(2);
const KNOWN: &str = "{bar:30} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {wide_msg}";
const UNKNOWN: &str = "{spinner} {binary_bytes} {binary_bytes_per_sec} {wide_msg}";

#[derive(Clone)]
pub struct Progress {
    bar: ProgressBar,
    started: Instant,
    wanted: bool,
}

impl Progress {
    /// `total` is the number of bytes, if known.
    pub fn new(total: Option<u64>) -> Self {
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template(if total.is_some() { KNOWN } else { UNKNOWN }) {
            bar.set_style(style);
        }
        Self { bar, started: Instant::now(), wanted: io::stderr().is_terminal() }
    }

    /// Shows the name of the current file.
    pub fn file(&self, path: &str) {
        self.bar.set_message(path.to_owned());
    }

    pub fn add(&self, bytes: usize) {
        if self.wanted && self.bar.is_hidden() && self.started.elapsed() > SHOWN_AFTER {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.inc(bytes as u64);
    }

    /// Prints a line above the bar.
    pub fn note(&self, text: &str) {
        self.bar.suspend(|| eprintln!("sandling: {text}"));
    }

    pub fn done(&self) {
        self.bar.finish_and_clear();
    }
}
