//! Output: tables, lines and progress for people, JSON for programs.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use comfy_table::{Cell, Color, ContentArrangement, Row, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use sandling_engine::Step;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::client::{self, read};
use crate::outcome;

/// Tables are not wrapped to terminals with fewer columns than this.
const MIN_WRAP_COLUMNS: u16 = 40;

/// A table without borders.
pub fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    // A serial console reports a width of 0; wrapping to that would put every letter on its own line.
    if table.width().is_some_and(|columns| columns >= MIN_WRAP_COLUMNS) {
        table.set_content_arrangement(ContentArrangement::Dynamic);
    }
    table.set_header(header.iter().map(|title| title.to_uppercase()));
    table
}

/// A status word, coloured on a terminal.
pub fn status(word: &str) -> Cell {
    let cell = Cell::new(word);
    if !has_colours(&io::stdout()) {
        return cell;
    }
    match word {
        "running" | "ok" => cell.fg(Color::Green),
        "paused" | "refused" => cell.fg(Color::Yellow),
        "error" => cell.fg(Color::Red),
        _ => cell,
    }
}

/// Whether the stream is a terminal and `NO_COLOR` is not set.
pub fn has_colours(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Prints a list as a table with one row per entry, or unchanged as JSON.
pub fn list<T: DeserializeOwned, R: Into<Row>>(
    entries: Value,
    as_json: bool,
    header: &[&str],
    row: impl Fn(T) -> R,
) -> anyhow::Result<()> {
    if as_json {
        return json(&entries);
    }
    let mut table = table(header);
    table.add_rows(read::<Vec<T>>(entries)?.into_iter().map(row));
    line(table)
}

/// Prints one field of a response, or the whole response as JSON.
pub fn field(response: &Value, name: &str, as_json: bool) -> anyhow::Result<()> {
    if as_json { json(response) } else { line(client::field(response, name)?) }
}

pub fn line(text: impl Display) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}").and_then(|()| stdout.flush()).map_err(outcome::stdout_error)
}

/// Prints a JSON value with indentation.
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    line(serde_json::to_string_pretty(value)?)
}

/// The first characters of an ID, for tables.
pub fn short(id: &str) -> &str {
    id.get(..8).unwrap_or(id)
}

/// The time between two timestamps: `5 min`.
pub fn span(from: Timestamp, to: Timestamp) -> String {
    let seconds = to.duration_since(from).as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// A timestamp with seconds.
pub fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

/// `one=1, two=2`
pub fn pairs(pairs: &std::collections::BTreeMap<String, String>) -> String {
    pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(", ")
}

/// How often progress of the same step is printed when stderr is not a terminal.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(3);

/// Progress of a long operation: a spinner on a terminal, plain lines elsewhere.
pub struct Progress {
    bar: Option<ProgressBar>,
    /// The last plain line and its time.
    last: Mutex<Option<(String, Instant)>>,
}

impl Progress {
    pub fn new() -> Self {
        let last = Mutex::default();
        if !io::stderr().is_terminal() {
            return Self { bar: None, last };
        }
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed:>4} {wide_msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(120));
        Self { bar: Some(bar), last }
    }

    pub fn step(&self, step: &Step) {
        let line = match step.progress {
            Some((done, total)) => format!("{} ({done} of {total})", step.text),
            None => step.text.clone(),
        };
        if self.bar.is_some() || self.is_due(&line, Instant::now()) {
            self.say(line);
        }
    }

    pub fn say(&self, text: String) {
        match &self.bar {
            Some(bar) => bar.set_message(text),
            None => eprintln!("  {text}"),
        }
    }

    /// Prints a line that stays.
    pub fn print(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => eprintln!("{text}"),
        }
    }

    /// Whether to print a line now. New steps are printed at once, and a line never twice in a row. Numbers in parentheses
    /// and text after a colon are details of the same step.
    fn is_due(&self, line: &str, now: Instant) -> bool {
        let step = |line: &str| line.split([':', '(']).next().unwrap_or_default().trim_end().to_owned();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.as_ref().is_none_or(|(shown, at)| {
            step(shown) != step(line) || (shown != line && now.duration_since(*at) >= PROGRESS_INTERVAL)
        });
        if is_due {
            *last = Some((line.to_owned(), now));
        }
        is_due
    }

    pub fn done(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// The beginning of the first line of a text, for tables.
pub fn first_line(text: &str) -> String {
    const MOST: usize = 60;
    let line = text.lines().next().unwrap_or_default();
    let cut: String = line.chars().take(MOST).filter(|character| !character.is_control()).collect();
    if cut.len() < text.trim_end().len() { format!("{cut}…") } else { cut }
}

/// `1.5 GiB`
pub fn bytes(count: u64) -> String {
    indicatif::BinaryBytes(count).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_of_one_step_is_rate_limited() {
        let progress = Progress { bar: None, last: Mutex::default() };
        let begun = Instant::now();
        let due = |text, seconds| progress.is_due(text, begun + Duration::from_secs(seconds));
        assert!(due("installing packages: a", 0));
        assert!(!due("installing packages: b", 1));
        assert!(due("installing packages: c", 3));
        assert!(due("computing checksums: root.img", 3));
        assert!(!due("computing checksums: root.img", 4));
    }

    #[test]
    fn spans_use_one_rounded_unit() {
        let from = Timestamp::UNIX_EPOCH;
        let after = |seconds| span(from, from + jiff::SignedDuration::from_secs(seconds));
        assert_eq!([-5, 5, 150, 7300, 200_000].map(after), ["0 s", "5 s", "2 min", "2 h", "2 d"]);
    }
}
