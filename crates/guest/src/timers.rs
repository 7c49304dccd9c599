//! Timers.
//!
//! A timer cannot be cancelled: its handler checks whether it still applies.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use sandling_protocol::Language;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// A command has reached its timeout.
    ExecDeadline(u64),
    /// A script has run for a while; its output is read from now on.
    ListenToExec(u64),
    /// A command has ended, and the rest of its output had time to arrive.
    OutputGrace(u64),
    /// A command's terminal was resized a moment ago; check that it still has this size.
    KeepSize(u64),
    /// A command was killed a moment ago; check what is left of it.
    Runaways,
    /// A cell has reached its timeout: the context and the cell's number.
    CellDeadline(u64, u64),
    /// A cell was interrupted; interrupt it again, because it can miss a signal.
    CellNudge(u64, u64),
    /// A cell was interrupted and its grace period is over.
    CellGrace(u64, u64),
    /// A spare interpreter was claimed; make another.
    Refill(Language),
    /// A stream waits for a spare interpreter to be ready.
    CheckSpare(Language),
    /// The channel could not be opened; retry.
    Reopen,
}

#[derive(Default)]
pub struct Timers(BinaryHeap<Reverse<(Instant, Timer)>>);

impl Timers {
    pub fn set(&mut self, after: Duration, timer: Timer) {
        // A deadline that the clock cannot represent never comes.
        if let Some(at) = Instant::now().checked_add(after) {
            self.0.push(Reverse((at, timer)));
        }
    }

    /// The time until the next timer.
    pub fn next(&self) -> Option<Duration> {
        self.0.peek().map(|Reverse((at, _))| at.saturating_duration_since(Instant::now()))
    }

    /// Removes and returns a timer that is due.
    pub fn due(&mut self) -> Option<Timer> {
        let Reverse((at, _)) = self.0.peek()?;
        if *at > Instant::now() {
            return None;
        }
        self.0.pop().map(|Reverse((_, timer))| timer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_come_in_order_and_not_early() {
        let mut timers = Timers::default();
        timers.set(Duration::from_secs(60), Timer::Reopen);
        timers.set(Duration::ZERO, Timer::ExecDeadline(1));
        timers.set(Duration::MAX, Timer::ExecDeadline(2));
        assert_eq!(timers.due(), Some(Timer::ExecDeadline(1)));
        assert_eq!(timers.due(), None);
        assert!(timers.next().is_some_and(|left| left > Duration::from_secs(50)));
    }
}
