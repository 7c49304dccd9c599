//! How many standbys a template's pool holds: a fixed number, or as many as recent creates called for.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How many standbys to keep ready per template, once the template was first used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standbys {
    /// So many; 0 for none.
    Fixed(usize),
    /// As many as the busiest moment called for, until it was so long ago. At least one.
    Auto { forget_after: Duration },
}

impl Standbys {
    pub const NONE: Self = Self::Fixed(0);
    pub const AUTO: Self = Self::Auto { forget_after: Duration::from_secs(300) };
}

/// Creates that come within this time, beside the time to make a standby, are one burst. A sandbox that was just created
/// has the processors for itself for a part of it.
const BURST: Duration = Duration::from_secs(1);
/// If more sandboxes start at once, they wait for processors, and standbys would not make them faster.
const PER_CORE: usize = 2;
/// Standbys take one part in so many of the memory that the host can spare.
const MEMORY_SHARE: u64 = 4;
/// No host has more places for standbys.
const MOST_CREATES: usize = 4096;

/// The recent creates of one template.
#[derive(Debug, Default)]
pub(super) struct Demand {
    creates: VecDeque<Instant>,
    /// How long the last standby took to make.
    making: Duration,
}

impl Demand {
    pub(super) fn created(&mut self, at: Instant) {
        if self.creates.len() == MOST_CREATES {
            self.creates.pop_front();
        }
        self.creates.push_back(at);
    }

    pub(super) fn made(&mut self, took: Duration) {
        self.making = took;
    }

    /// How many creates came while one standby is made, at the busiest moment since `forget_after` ago.
    pub(super) fn busiest(&mut self, now: Instant, forget_after: Duration) -> usize {
        while self.creates.front().is_some_and(|at| now.duration_since(*at) > forget_after) {
            self.creates.pop_front();
        }
        let (window, mut from) = (self.making + BURST, 0);
        let bursts = self.creates.iter().enumerate().map(|(last, at)| {
            while at.duration_since(self.creates[from]) > window {
                from += 1;
            }
            last + 1 - from
        });
        bursts.max().unwrap_or_default()
    }
}

/// What the host has for the standbys of one template.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    pub(super) cores: usize,
    /// The memory that the host can spare besides the standbys that are ready; `None` where that is unknown.
    pub(super) free_mib: Option<u64>,
    /// What a standby takes.
    pub(super) standby_mib: u64,
    pub(super) ready: usize,
}

/// How many standbys to hold: as many as the busiest moment called for and the host has room for, and at least one.
pub(super) fn called_for(busiest: usize, room: Room) -> usize {
    let more = room.free_mib.map_or(0, |free| free / MEMORY_SHARE / room.standby_mib.max(1));
    let by_memory = room.ready.saturating_add(usize::try_from(more).unwrap_or(usize::MAX));
    busiest.min(by_memory).min(room.cores * PER_CORE).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn demand(start: Instant, seconds: &[f64]) -> Demand {
        let mut demand = Demand { making: Duration::from_millis(500), ..Demand::default() };
        seconds.iter().for_each(|at| demand.created(start + Duration::from_secs_f64(*at)));
        demand
    }

    #[test]
    fn creates_one_after_another_call_for_one() {
        let start = Instant::now();
        let mut quiet = demand(start, &[0.0, 2.0, 4.0, 6.0]);
        assert_eq!(quiet.busiest(start + MINUTE / 2, MINUTE), 1);
        assert_eq!(Demand::default().busiest(start, MINUTE), 0);
    }

    #[test]
    fn a_burst_is_remembered_until_it_was_long_ago() {
        let start = Instant::now();
        let mut burst = demand(start, &[0.0, 0.1, 0.2, 1.4, 3.0, 9.0, 9.1]);
        assert_eq!(burst.busiest(start + MINUTE / 2, MINUTE), 4);
        assert_eq!(burst.busiest(start + MINUTE + Duration::from_secs(4), MINUTE), 2);
        assert_eq!(burst.busiest(start + 2 * MINUTE, MINUTE), 0);
    }

    #[test]
    fn a_standby_that_takes_longer_to_make_must_serve_more_creates() {
        let start = Instant::now();
        let mut steady = demand(start, &[0.0, 2.0, 4.0, 6.0]);
        steady.made(Duration::from_secs(4));
        assert_eq!(steady.busiest(start + MINUTE / 2, MINUTE), 3);
    }

    #[test]
    fn old_creates_are_dropped_before_they_take_much_memory() {
        let start = Instant::now();
        let mut many = demand(start, &vec![0.0; MOST_CREATES + 1]);
        assert_eq!(many.busiest(start, MINUTE), MOST_CREATES);
    }

    #[test]
    fn the_host_limits_how_many_are_held() {
        let room = Room { cores: 4, free_mib: Some(8000), standby_mib: 400, ready: 0 };
        assert_eq!([0, 1, 3, 100].map(|busiest| called_for(busiest, room)), [1, 1, 3, 5]);
        assert_eq!(called_for(100, Room { free_mib: Some(u64::MAX), ..room }), 8);
        // Those that are ready have their memory already.
        assert_eq!(called_for(100, Room { free_mib: Some(0), ready: 3, ..room }), 3);
        assert_eq!(called_for(100, Room { free_mib: None, ..room }), 1);
    }
}
