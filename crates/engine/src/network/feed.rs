//! The decisions of a sandbox's gateways: the newest ones, and new ones as they come.
//!
//! They are kept in memory. A guest can cause hundreds of decisions a second, so the store gets only a few of them:
//! otherwise they would push out the events of other sandboxes.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sandling_network::Event;
use serde::Serialize;
use tokio::sync::broadcast;

/// How far back one can look.
const KEPT: usize = 1000;
/// How many go to the store: so many at once, and one more each time this has passed.
const BURST: u32 = 50;
const EVERY: Duration = Duration::from_secs(5);

/// One decision, with a number that rises.
#[derive(Debug, Clone, Serialize)]
pub struct NetworkEvent {
    pub number: u64,
    #[serde(flatten)]
    pub event: Event,
}

pub(crate) struct Feed {
    recent: Mutex<Recent>,
    live: broadcast::Sender<NetworkEvent>,
}

struct Recent {
    events: VecDeque<NetworkEvent>,
    last: u64,
    /// How many may go to the store, and since when.
    allowance: u32,
    since: Instant,
}

impl Feed {
    pub fn new() -> Self {
        let recent = Recent { events: VecDeque::new(), last: 0, allowance: BURST, since: Instant::now() };
        Self { recent: Mutex::new(recent), live: broadcast::Sender::new(256) }
    }

    /// Takes an event in. True if it may go to the store.
    pub fn push(&self, event: Event) -> bool {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.last += 1;
        let event = NetworkEvent { number: recent.last, event };
        if recent.events.len() == KEPT {
            recent.events.pop_front();
        }
        recent.events.push_back(event.clone());
        // There may be no listener.
        let _ = self.live.send(event);
        recent.may_be_stored()
    }

    /// The newest events after the one of this number, oldest first.
    pub fn after(&self, number: u64, most: usize) -> Vec<NetworkEvent> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let mut events: Vec<_> =
            recent.events.iter().rev().take_while(|event| event.number > number).take(most).cloned().collect();
        events.reverse();
        events
    }

    pub fn subscribe(&self) -> broadcast::Receiver<NetworkEvent> {
        self.live.subscribe()
    }
}

impl Recent {
    fn may_be_stored(&mut self) -> bool {
        let earned = (self.since.elapsed().as_secs() / EVERY.as_secs()) as u32;
        if earned > 0 {
            self.allowance = self.allowance.saturating_add(earned).min(BURST);
            self.since = Instant::now();
        }
        let may = self.allowance > 0;
        self.allowance = self.allowance.saturating_sub(1);
        may
    }
}

#[cfg(test)]
mod tests {
    use sandling_network::policy::Refusal;
    use sandling_network::{EventKind, Verdict};

    use super::*;

    #[test]
    fn the_newest_are_kept_and_few_are_stored() {
        let feed = Feed::new();
        let event = || Event::new(EventKind::Dns, Verdict::Refused(Refusal::PolicyDenies));
        let stored = (0..5000).filter(|_| feed.push(event())).count();
        assert!(stored <= 60, "{stored}");
        let numbers: Vec<_> = feed.after(0, usize::MAX).iter().map(|event| event.number).collect();
        assert_eq!((numbers.len(), numbers[0], numbers[999]), (1000, 4001, 5000));
        assert_eq!(feed.after(4998, 100).len(), 2);
        assert_eq!(feed.after(0, 3)[0].number, 4998);
    }
}
