//! The report: a table for people, JSON for programs, Markdown for the file.

use std::fmt::Write;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::trial::{Attempt, Verdict};
use crate::show;

#[derive(Debug, Serialize)]
pub struct Report {
    pub version: &'static str,
    pub started_at: Timestamp,
    pub duration_seconds: u64,
    /// Whether every defense held that was tried and not accepted.
    pub held: bool,
    pub host: Vec<Fact>,
    pub entries: Vec<Finding>,
}

#[derive(Debug, Serialize)]
pub struct Fact {
    pub name: &'static str,
    pub value: String,
}

/// What came of one attack.
#[derive(Debug, Serialize)]
pub struct Finding {
    pub id: &'static str,
    pub title: &'static str,
    pub verdict: Verdict,
    /// The user knows that it does not hold.
    pub accepted: bool,
    pub summary: String,
    pub seconds: f64,
    pub attempts: Vec<Attempt>,
}

impl Report {
    pub fn new(
        host: Vec<(&'static str, String)>,
        started_at: Timestamp,
        took: Duration,
        entries: Vec<Finding>,
    ) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            started_at,
            duration_seconds: took.as_secs(),
            held: !entries.iter().any(|entry| entry.verdict == Verdict::DidNotHold && !entry.accepted),
            host: host.into_iter().map(|(name, value)| Fact { name, value }).collect(),
            entries,
        }
    }

    fn count(&self, verdict: Verdict) -> usize {
        self.entries.iter().filter(|entry| entry.verdict == verdict).count()
    }

    pub fn summary(&self) -> String {
        let [held, broken, not_tried] =
            [Verdict::Held, Verdict::DidNotHold, Verdict::NotTried].map(|verdict| self.count(verdict));
        format!("{held} held, {broken} did not hold, {not_tried} not tried, in {} s", self.duration_seconds)
    }

    pub fn print(&self) -> anyhow::Result<()> {
        let mut table = show::table(&["", "attack", "result"]);
        for entry in &self.entries {
            table.add_row([entry.mark().as_str(), entry.id, &format!("{}\n{}", entry.title, entry.summary)]);
        }
        show::line(format_args!("{table}\n\n{}", self.summary()))
    }

    pub fn markdown(&self) -> String {
        let mut text = String::from("# Attack report\n\n");
        let started = show::time(self.started_at);
        let _ = writeln!(text, "Sandling {} attacked this host on {started}.\n\n{}.\n", self.version, self.summary());
        text.push_str("| host | |\n|---|---|\n");
        for Fact { name, value } in &self.host {
            let _ = writeln!(text, "| {name} | {} |", cell(value));
        }
        text.push_str("\n| verdict | attack | what was attacked | summary |\n|---|---|---|---|\n");
        for entry in &self.entries {
            let _ = writeln!(
                text,
                "| {} | [`{}`](#{}) | {} | {} |",
                entry.mark(),
                entry.id,
                entry.id.replace('.', ""),
                entry.title,
                cell(&entry.summary)
            );
        }
        for entry in &self.entries {
            entry.add_markdown(&mut text);
        }
        text
    }
}

impl Finding {
    fn mark(&self) -> String {
        let accepted = if self.accepted { " (accepted)" } else { "" };
        match self.verdict {
            Verdict::DidNotHold => format!("DID NOT HOLD{accepted}"),
            verdict => verdict.text().to_owned(),
        }
    }

    fn add_markdown(&self, text: &mut String) {
        let _ = writeln!(text, "\n## {}\n\n{}: **{}**, after {:.1} s.", self.id, self.title, self.mark(), self.seconds);
        if self.attempts.is_empty() || self.verdict == Verdict::NotTried {
            let _ = writeln!(text, "{}.", self.summary);
        }
        if self.attempts.is_empty() {
            return;
        }
        text.push_str("\n| tried | happened | |\n|---|---|---|\n");
        for attempt in &self.attempts {
            let verdict = attempt.verdict.text();
            let _ = writeln!(text, "| {} | {} | {verdict} |", cell(&attempt.tried), cell(&attempt.happened));
        }
    }
}

/// One line without the character that ends a cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(verdict: Verdict, accepted: bool) -> Finding {
        let attempts = vec![Attempt { tried: "a | b".to_owned(), happened: "two\nlines".to_owned(), verdict }];
        let summary = "why".to_owned();
        Finding { id: "jail.files", title: "files of the host", verdict, accepted, summary, seconds: 1.0, attempts }
    }

    fn report(entries: Vec<Finding>) -> Report {
        Report::new(vec![("kernel", "6.1".to_owned())], Timestamp::UNIX_EPOCH, Duration::from_secs(3), entries)
    }

    #[test]
    fn only_an_unaccepted_failure_counts() {
        assert!(report(vec![entry(Verdict::Held, false), entry(Verdict::NotTried, false)]).held);
        assert!(report(vec![entry(Verdict::DidNotHold, true)]).held);
        assert!(!report(vec![entry(Verdict::DidNotHold, false), entry(Verdict::Held, false)]).held);
    }

    #[test]
    fn the_file_has_every_attempt_in_one_line() {
        let text = report(vec![entry(Verdict::DidNotHold, false)]).markdown();
        assert!(text.contains("| a \\| b | two lines | did not hold |\n"), "{text}");
        assert!(text.contains("0 held, 1 did not hold, 0 not tried, in 3 s"), "{text}");
    }
}
