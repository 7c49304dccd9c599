//! Shows the agent loop live on stderr.

use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use sandling_agent::Event;

use crate::show::has_colours;
use crate::terminal::sanitize;

/// Characters to show of a line or of a call's arguments.
const MAX_LINE: usize = 200;

pub struct View {
    is_quiet: bool,
    has_colours: bool,
    /// Whether the last output did not end with a newline.
    is_open: Mutex<bool>,
}

#[derive(Clone, Copy)]
enum Style {
    Plain,
    Dim,
    Call,
    Good,
    Bad,
}

impl Style {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Dim => "\x1b[2m",
            Self::Call => "\x1b[36m",
            Self::Good => "\x1b[32m",
            Self::Bad => "\x1b[31m",
        }
    }
}

impl View {
    pub fn new(is_quiet: bool) -> Self {
        Self { is_quiet, has_colours: has_colours(&io::stderr()), is_open: Mutex::new(false) }
    }

    /// Prints a status line.
    pub fn note(&self, text: &str) {
        if !self.is_quiet {
            self.line(None, Style::Dim, text);
        }
    }

    /// Prints an event. `attempt` is set when several attempts run at once; partial lines are then not shown.
    pub fn show(&self, attempt: Option<usize>, event: &Event<'_>) {
        if self.is_quiet {
            return;
        }
        match event {
            Event::Forked { wanted, made } => {
                self.line(None, Style::Bad, &format!("only {made} of {wanted} forks could be created"));
            }
            Event::Step { .. } | Event::Replied { .. } => self.close(),
            Event::Said(text) if attempt.is_none() => self.piece(text),
            Event::Said(_) => {}
            Event::Retry { why, after } => {
                let text = format!("retrying in {:.1} s: {why}", after.as_secs_f64());
                self.line(attempt, Style::Dim, &text);
            }
            Event::Called { name, arguments } => {
                let about = ["command", "code", "path"].iter().find_map(|key| arguments[key].as_str());
                let about = about.map_or_else(|| arguments.to_string(), str::to_owned);
                self.line(attempt, Style::Call, &format!("▸ {name} {}", first_line(&about)));
            }
            Event::Printed(_, bytes) if attempt.is_none() => {
                for line in String::from_utf8_lossy(bytes).lines() {
                    self.line(None, Style::Dim, &format!("  │ {line}"));
                }
            }
            Event::Printed(..) => {}
            Event::Observed(observation) => {
                let style = match (observation.is_error, observation.exit_code) {
                    (true, _) => Style::Bad,
                    (false, Some(0) | None) => Style::Good,
                    (false, Some(_)) => Style::Bad,
                };
                self.line(attempt, style, &format!("  └ {}", first_line(&observation.text)));
            }
        }
    }

    /// Colours the additions and removals of a diff.
    pub fn coloured_diff(&self, diff: &str) -> String {
        if !self.has_colours {
            return diff.to_owned();
        }
        diff.lines()
            .map(|line| match line.as_bytes().first() {
                Some(b'+') => self.styled(Style::Good, line) + "\n",
                Some(b'-') => self.styled(Style::Bad, line) + "\n",
                Some(b'@' | b'd') => self.styled(Style::Dim, line) + "\n",
                _ => format!("{line}\n"),
            })
            .collect()
    }

    fn styled(&self, style: Style, text: &str) -> String {
        match style {
            Style::Plain => text.to_owned(),
            _ if !self.has_colours => text.to_owned(),
            style => format!("{}{text}\x1b[0m", style.code()),
        }
    }

    fn line(&self, attempt: Option<usize>, style: Style, text: &str) {
        self.close();
        let prefix = attempt.map(|number| format!("[{number}] ")).unwrap_or_default();
        self.write(&format!("{prefix}{}\n", self.styled(style, &sanitize(text))));
    }

    fn piece(&self, text: &str) {
        if text.is_empty() {
            return;
        }
        *self.open() = !text.ends_with('\n');
        self.write(&self.styled(Style::Plain, &sanitize(text)));
    }

    fn close(&self) {
        if std::mem::take(&mut *self.open()) {
            self.write("\n");
        }
    }

    fn open(&self) -> std::sync::MutexGuard<'_, bool> {
        self.is_open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ignores write errors: the task continues even if stderr is closed.
    fn write(&self, text: &str) {
        let mut stderr = io::stderr().lock();
        let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
    }
}

fn first_line(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    let cut: String = line.chars().take(MAX_LINE).collect();
    if cut.len() < text.trim().len() { format!("{cut} …") } else { cut }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_line_is_shown() {
        assert_eq!(first_line("\nls -l\nrm"), "ls -l …");
        assert_eq!(first_line("ls"), "ls");
    }
}
