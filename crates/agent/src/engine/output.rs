//! Collects the output of a command line: shows it, writes it to the transcript, and keeps the answer.

use sandling_client::Stream;
use serde_json::{Value, json};

use super::report::{Reader, Report};
use crate::events::Event;
use crate::job::Job;
use crate::usage::Usage;

/// The most bytes that are kept of an answer, or of an unfinished line.
const MAX_ANSWER: usize = 4 * 1024 * 1024;
/// The most bytes of output that are written to the transcript.
const MAX_TRANSCRIBED: usize = 64 * 1024 * 1024;

pub(super) struct Output<'a> {
    /// Absent if the output is the answer itself.
    reader: Option<Reader>,
    job: &'a Job<'a>,
    /// The answer or, with a reader, an unfinished line.
    pending: Vec<u8>,
    written: usize,
    answer: String,
    steps: u32,
    usage: Usage,
}

impl<'a> Output<'a> {
    pub(super) fn new(reader: Option<Reader>, job: &'a Job<'a>) -> Self {
        Self { reader, job, pending: Vec::new(), written: 0, answer: String::new(), steps: 0, usage: Usage::default() }
    }

    pub(super) fn push(&mut self, stream: Stream, bytes: &[u8]) {
        let is_report = stream == Stream::Stdout && self.reader.is_some();
        if !is_report {
            self.write_down(stream, bytes);
            (self.job.watch)(Event::Printed(stream, bytes));
        }
        if stream == Stream::Stdout {
            self.pending.extend_from_slice(bytes);
            if let Some(reader) = self.reader {
                self.read_lines(reader);
            }
            let over = self.pending.len().saturating_sub(MAX_ANSWER);
            self.pending.drain(..over);
        }
    }

    fn write_down(&mut self, stream: Stream, bytes: &[u8]) {
        let name = if stream == Stream::Stdout { "stdout" } else { "stderr" };
        let before = self.written;
        self.written = before.saturating_add(bytes.len());
        if self.written <= MAX_TRANSCRIBED {
            self.job.transcript.write("output", json!({ "stream": name, "text": String::from_utf8_lossy(bytes) }));
        } else if before <= MAX_TRANSCRIBED {
            self.job.transcript.write("output", json!({ "stream": name, "text": "[more was printed than is kept]" }));
        }
    }

    fn read_lines(&mut self, reader: Reader) {
        while let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.pending.drain(..=end).collect();
            let reports = serde_json::from_slice::<Value>(&line).map(|line| reader(&line)).unwrap_or_default();
            for report in reports {
                self.take(report);
            }
        }
    }

    fn take(&mut self, report: Report) {
        let Job { transcript, watch, .. } = self.job;
        match report {
            Report::Said(text) => {
                transcript.write("reply", json!({ "text": text }));
                watch(Event::Said(&format!("{text}\n")));
            }
            Report::Called { name, arguments } => {
                transcript.write("call", json!({ "name": name, "arguments": arguments }));
                watch(Event::Called { name: &name, arguments: &arguments });
            }
            Report::Observed(observation) => {
                let (text, exit_code) = (&observation.text, observation.exit_code);
                let is_error = observation.is_error;
                transcript.write("result", json!({ "text": text, "exit_code": exit_code, "is_error": is_error }));
                watch(Event::Observed(&observation));
            }
            Report::Used { steps, usage } => (self.steps, self.usage) = (steps, usage),
            Report::Answer(text) => self.answer = text,
        }
    }

    /// The answer, and the usage that was reported.
    pub(super) fn end(mut self) -> (String, u32, Usage) {
        match self.reader {
            Some(reader) => {
                self.pending.push(b'\n');
                self.read_lines(reader);
            }
            None => self.answer = String::from_utf8_lossy(&self.pending).trim().to_owned(),
        }
        (self.answer, self.steps, self.usage)
    }
}
