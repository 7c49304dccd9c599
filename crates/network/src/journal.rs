//! Counts the gateway's decisions and reports them as events, within a rate limit.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::event::{Event, EventKind, Verdict};
use crate::frame::Dropped;
use crate::policy::Refusal;
use crate::rate::Bucket;
use crate::totals::Totals;

/// Events a second that are reported, on average and at once. A guest must not flood the receiver.
const EVENTS: (f64, f64) = (200.0, 1000.0);
/// During a flood of equal events, one is reported in this time.
const SAMPLED: Duration = Duration::from_secs(1);

macro_rules! counters {
    ($($(#[$about:meta])* $field:ident),*) => {
        /// Counters of one gateway since it started.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Stats { $($(#[$about])* pub $field: u64),* }

        /// The counters behind [`Stats`].
        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub $field: AtomicU64),* }

        impl Counters {
            pub fn read(&self) -> Stats {
                Stats { $($field: self.$field.load(Ordering::Relaxed)),* }
            }
        }
    };
}

counters!(
    frames_in,
    frames_out,
    /// Frames that could not be sent because the machine is stopped or gone.
    frames_unsent,
    malformed,
    oversized,
    fragments,
    spoofed,
    dns_queries,
    dns_refused,
    connections_open,
    connections_allowed,
    connections_refused,
    packets_refused,
    requests_refused,
    bytes_out,
    bytes_in,
    /// Events that were dropped because of the rate limit, or because the receiver had no room.
    events_lost
);

/// Increments a counter.
pub(crate) fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Counts decisions and reports them.
#[derive(Debug)]
pub(crate) struct Journal {
    pub counters: Counters,
    pub totals: Arc<Totals>,
    events: Option<mpsc::Sender<Event>>,
    pace: Mutex<Bucket>,
    /// When an event with this verdict may be reported again.
    sampled: Mutex<HashMap<Verdict, Instant>>,
}

impl Journal {
    pub fn new(events: Option<mpsc::Sender<Event>>, totals: Arc<Totals>) -> Journal {
        let pace = Mutex::new(Bucket::new(EVENTS.0, EVENTS.1));
        Journal { counters: Counters::default(), totals, events, pace, sampled: Mutex::default() }
    }

    /// Counts a decision and reports it, within the rate limit.
    pub fn write(&self, event: Event) {
        self.count(&event);
        self.pass_on(event);
    }

    /// Counts a decision that a guest can trigger without limit, and reports one sample per interval.
    pub fn sample(&self, event: Event) {
        self.count(&event);
        let now = Instant::now();
        let mut sampled = self.sampled.lock().unwrap_or_else(PoisonError::into_inner);
        let next = sampled.entry(event.verdict).or_insert(now);
        if *next <= now {
            *next = now + SAMPLED;
            drop(sampled);
            self.pass_on(event);
        }
    }

    /// Counts a frame that is dropped without a reply.
    pub fn dropped(&self, why: Dropped) {
        let (counter, refusal) = match why {
            Dropped::Malformed => (&self.counters.malformed, Refusal::FrameMalformed),
            Dropped::Oversized => (&self.counters.oversized, Refusal::FrameOversized),
            Dropped::Fragment => (&self.counters.fragments, Refusal::Fragment),
            Dropped::Spoofed => (&self.counters.spoofed, Refusal::Spoofed),
        };
        add(counter);
        self.sample(Event::new(EventKind::Packet, Verdict::Refused(refusal)));
    }

    /// Counts a DNS query.
    pub fn asked(&self) {
        add(&self.counters.dns_queries);
        self.totals.asked();
    }

    fn count(&self, event: &Event) {
        self.totals.decided(event.kind, event.verdict);
        let refused = matches!(event.verdict, Verdict::Refused(_));
        match (event.kind, refused) {
            (EventKind::Dns, true) => add(&self.counters.dns_refused),
            (EventKind::Connect | EventKind::Accept | EventKind::Name, true) => add(&self.counters.connections_refused),
            (EventKind::Connect | EventKind::Accept, false) if event.verdict == Verdict::Allowed => {
                add(&self.counters.connections_allowed)
            }
            (EventKind::Packet, true) => add(&self.counters.packets_refused),
            (EventKind::Request, true) => add(&self.counters.requests_refused),
            _ => {}
        }
    }

    fn pass_on(&self, event: Event) {
        let Some(events) = &self.events else { return };
        let paced = self.pace.lock().unwrap_or_else(PoisonError::into_inner).take(1.0);
        if !paced || events.try_send(event).is_err() {
            add(&self.counters.events_lost);
            self.totals.lost();
        }
    }
}
