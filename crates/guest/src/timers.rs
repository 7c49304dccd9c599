//! What is to happen at a given moment.
//!
//! Timers are never taken back: whoever gets one looks whether it still concerns anybody.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use sandling_protocol::Language;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// A command's time is up.
    ExecDeadline(u64),
    /// A script has run for a while; its output is looked for from now on.
    ListenToExec(u64),
    /// A command has ended; its terminal had time to hand over the rest.
    TerminalGrace(u64),
    /// A command was ended a moment ago; look what is left of it.
    Runaways,
    /// A cell's time is up: the context and the cell's number.
    CellDeadline(u64, u64),
    /// A cell was asked to stop; ask again, because a signal can be missed.
    CellNudge(u64, u64),
    /// A cell was asked to stop and had its chance.
    CellGrace(u64, u64),
    /// A spare interpreter was used; make another.
    Refill(Language),
    /// Somebody waits for a spare interpreter to be ready.
    CheckSpare(Language),
    /// The channel could not be opened; try again.
    Reopen,
}

#[derive(Default)]
pub struct Timers(BinaryHeap<Reverse<(Instant, Timer)>>);

impl Timers {
    pub fn set(&mut self, after: Duration, timer: Timer) {
        // A deadline beyond what the clock can say never comes.
        if let Some(at) = Instant::now().checked_add(after) {
            self.0.push(Reverse((at, timer)));
        }
    }

    /// How long until the next one.
    pub fn next(&self) -> Option<Duration> {
        self.0.peek().map(|Reverse((at, _))| at.saturating_duration_since(Instant::now()))
    }

    /// One that is due.
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
