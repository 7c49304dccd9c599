//! A command's output: counted, bounded, and kept for streams that attach later.

use std::collections::VecDeque;

use sandling_protocol::{OnLimit, Part};

/// How much of one command's output is kept.
const KEPT_BYTES: u64 = 16 * 1024 * 1024;

/// How much is kept of a command that keeps only its newest output.
const KEPT_TAIL_BYTES: u64 = 1024 * 1024;

/// How much is kept of each command when the agent uses too much memory.
const KEPT_IN_NEED_BYTES: u64 = 1024 * 1024;

/// The newest bytes of several parts, in order of arrival. A position counts from the first byte ever.
pub struct Log {
    bytes: VecDeque<u8>,
    runs: VecDeque<Run>,
    start: u64,
}

/// The start of a run of bytes of one part. It ends where the next run starts.
struct Run {
    part: Part,
    start: u64,
}

impl Log {
    pub fn new() -> Self {
        Self { bytes: VecDeque::new(), runs: VecDeque::new(), start: 0 }
    }

    /// The oldest position that is kept.
    pub fn start(&self) -> u64 {
        self.start
    }

    pub fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Memory in use, which for many short runs is more than their bytes.
    pub fn weight(&self) -> usize {
        self.bytes.len() + self.runs.len() * size_of::<Run>()
    }

    pub fn append(&mut self, part: Part, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if self.runs.back().is_none_or(|run| run.part != part) {
            self.runs.push_back(Run { part, start: self.end() });
        }
        self.bytes.extend(bytes);
    }

    /// Drops the oldest bytes until at most `keep` are left.
    pub fn trim(&mut self, keep: u64) {
        let excess = (self.bytes.len() as u64).saturating_sub(keep);
        if excess == 0 {
            return;
        }
        self.bytes.drain(..excess as usize);
        self.start += excess;
        while self.runs.get(1).is_some_and(|next| next.start <= self.start) {
            self.runs.pop_front();
        }
        if self.bytes.is_empty() {
            self.runs.clear();
        }
    }

    /// Drops everything and frees the memory.
    pub fn clear(&mut self) {
        self.start = self.end();
        self.bytes = VecDeque::new();
        self.runs = VecDeque::new();
    }

    /// Up to `most` bytes of one part, from a position on.
    pub fn read(&self, position: u64, most: usize) -> Option<(Part, Vec<u8>)> {
        if position < self.start || position >= self.end() {
            return None;
        }
        let run = self.runs.partition_point(|run| run.start <= position).checked_sub(1)?;
        let run_end = self.runs.get(run + 1).map_or(self.end(), |next| next.start);
        let from = (position - self.start) as usize;
        let length = most.min((run_end - position) as usize);
        let (front, back) = self.bytes.as_slices();
        let mut bytes = Vec::with_capacity(length);
        if from < front.len() {
            bytes.extend_from_slice(&front[from..front.len().min(from + length)]);
        }
        let rest = length - bytes.len();
        let from = from.max(front.len()) - front.len();
        bytes.extend_from_slice(&back[from..from + rest]);
        Some((self.runs[run].part, bytes))
    }
}

/// Output that counts against a limit.
pub struct Output {
    pub log: Log,
    limit: u64,
    on_limit: OnLimit,
    /// Accepted bytes of all counted parts.
    accepted: u64,
    /// How far it has been sent to a stream.
    pub sent: u64,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    pub dropped_bytes: u64,
}

/// Whether a command is within its output limit.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    Within,
    OverLimit,
}

/// Whether the agent has memory for more output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    Enough,
    Short,
    /// This is the end of the output: it is kept in any case, and must not displace bytes that were not sent.
    LastBytes,
}

impl Output {
    pub fn new(limit: u64, on_limit: OnLimit) -> Self {
        let log = Log::new();
        Self { log, limit, on_limit, accepted: 0, sent: 0, stdout_bytes: 0, stderr_bytes: 0, dropped_bytes: 0 }
    }

    /// Adds output. Bytes beyond the limit are counted and dropped.
    pub fn take(&mut self, part: Part, bytes: &[u8], memory: Memory) -> Verdict {
        match part {
            Part::Stderr => self.stderr_bytes += bytes.len() as u64,
            _ => self.stdout_bytes += bytes.len() as u64,
        }
        let room = match self.on_limit {
            OnLimit::Kill => self.limit.saturating_sub(self.accepted),
            OnLimit::KeepTail => u64::MAX,
        };
        let fits = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
        self.accepted += fits as u64;
        self.dropped_bytes += (bytes.len() - fits) as u64;
        self.log.append(part, &bytes[..fits]);
        self.trim(memory);
        if fits < bytes.len() { Verdict::OverLimit } else { Verdict::Within }
    }

    /// Adds output that does not count against the limit.
    pub fn take_uncounted(&mut self, part: Part, bytes: &[u8]) {
        self.log.append(part, bytes);
    }

    /// Whether reading more would drop bytes that a stream at `position` has not been sent. Never true for a command that
    /// keeps only its newest output.
    pub fn should_wait_for(&self, position: u64, memory: Memory, more: u64) -> bool {
        let kept = self.keeps(memory);
        let oldest_then = (self.log.end() + more).saturating_sub(kept);
        self.on_limit == OnLimit::Kill && self.limit > kept && position < oldest_then
    }

    fn keeps(&self, memory: Memory) -> u64 {
        let kept = match self.on_limit {
            OnLimit::Kill => KEPT_BYTES,
            OnLimit::KeepTail => KEPT_TAIL_BYTES.min(self.limit),
        };
        match memory {
            Memory::Enough => kept,
            Memory::LastBytes if self.on_limit == OnLimit::Kill => u64::MAX,
            Memory::LastBytes => kept,
            Memory::Short => kept.min(KEPT_IN_NEED_BYTES),
        }
    }

    fn trim(&mut self, memory: Memory) {
        let before = self.log.start().max(self.sent);
        self.log.trim(self.keeps(memory));
        self.dropped_bytes += self.log.start().saturating_sub(before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_returns_parts_in_order() {
        let mut log = Log::new();
        log.append(Part::Stdout, b"one");
        log.append(Part::Stdout, b"two");
        log.append(Part::Stderr, b"!");
        log.append(Part::Stdout, b"end");
        assert_eq!(log.read(0, 100).unwrap(), (Part::Stdout, b"onetwo".to_vec()));
        assert_eq!(log.read(2, 2).unwrap(), (Part::Stdout, b"et".to_vec()));
        assert_eq!(log.read(6, 100).unwrap(), (Part::Stderr, b"!".to_vec()));
        assert_eq!(log.read(7, 100).unwrap(), (Part::Stdout, b"end".to_vec()));
        assert_eq!(log.read(10, 1), None);
    }

    #[test]
    fn a_trimmed_log_keeps_positions_and_parts() {
        let mut log = Log::new();
        for _ in 0..1000 {
            log.append(Part::Stdout, b"abcdefg");
            log.append(Part::Stderr, b"12345");
            log.trim(20);
        }
        assert_eq!((log.start(), log.end()), (11980, 12000));
        assert!(log.runs.len() <= 4);
        assert_eq!(log.read(11995, 9).unwrap(), (Part::Stderr, b"12345".to_vec()));
        assert_eq!(log.read(11980, 9).unwrap().0, Part::Stdout);
        assert_eq!(log.read(11979, 9), None);
    }

    #[test]
    fn output_beyond_the_limit_is_dropped_and_counted() {
        let mut output = Output::new(5, OnLimit::Kill);
        assert_eq!(output.take(Part::Stdout, b"1234", Memory::Enough), Verdict::Within);
        assert_eq!(output.take(Part::Stderr, b"5678", Memory::Enough), Verdict::OverLimit);
        assert_eq!((output.log.end(), output.dropped_bytes, output.stderr_bytes), (5, 3, 4));
    }

    #[test]
    fn a_tail_counts_only_unsent_bytes_as_dropped() {
        let mut output = Output::new(4, OnLimit::KeepTail);
        output.take(Part::Stdout, b"abcd", Memory::Enough);
        output.sent = 3;
        assert_eq!(output.take(Part::Stdout, b"efghij", Memory::Enough), Verdict::Within);
        assert_eq!(output.dropped_bytes, 3);
        assert_eq!(output.log.read(6, 10).unwrap().1, b"ghij");
    }

    #[test]
    fn a_slow_stream_pauses_only_output_that_must_not_be_lost() {
        let bulk = vec![b'x'; KEPT_BYTES as usize];
        let mut output = Output::new(u64::MAX, OnLimit::Kill);
        output.take(Part::Stdout, &bulk, Memory::Enough);
        assert!(output.should_wait_for(0, Memory::Enough, 1));
        assert!(!output.should_wait_for(1, Memory::Enough, 1));
        let mut tail = Output::new(u64::MAX, OnLimit::KeepTail);
        tail.take(Part::Stdout, &bulk, Memory::Enough);
        assert!(!tail.should_wait_for(0, Memory::Enough, 1));
    }
}
