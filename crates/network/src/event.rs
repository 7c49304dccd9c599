//! What the gateway decided, for whoever watches: a stream of events, and counters.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::frame::Dropped;
use crate::name::HostName;
use crate::policy::Refusal;
use crate::rate::Bucket;
use crate::totals::Totals;

/// Events a second that are passed on, on average and at once: a guest must not drown whoever reads them.
const EVENTS: (f64, f64) = (200.0, 1000.0);
/// How often one is passed on of those that a flood consists of.
const SAMPLED: Duration = Duration::from_secs(1);

/// One decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    pub at: Timestamp,
    pub kind: EventKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<HostName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Whether it is about datagrams rather than a connection.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub udp: bool,
    pub verdict: Verdict,
    /// Bytes from and to the guest; known when a connection closes.
    #[serde(default)]
    pub bytes_out: u64,
    #[serde(default)]
    pub bytes_in: u64,
    /// Names of the secrets that were placed into a request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
}

/// What was decided about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A name was asked for.
    Dns,
    /// A connection was asked for, or a datagram sent that belongs to no exchange yet.
    Connect,
    /// A peer of its group asked for a connection to it, or sent it a datagram.
    Accept,
    /// A connection showed its name, or failed to.
    Name,
    /// An HTTP request was read.
    Request,
    /// A connection ended, or an exchange of datagrams.
    Close,
    /// Something other than TCP and UDP was sent to somebody, or a frame that cannot be taken.
    Packet,
}

/// What was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Allowed,
    Refused(Refusal),
    Failed(Failure),
}

/// Why something that was allowed did not work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    NoSuchName,
    NoAnswer,
    Unreachable,
    ConnectionRefused,
    TimedOut,
    Reset,
    /// The server's certificate does not hold, or its TLS cannot be spoken with.
    ServerTls,
    /// The guest does not trust its sandbox's authority, or speaks no HTTP/1.1.
    GuestTls,
    Idle,
}

impl Event {
    /// An event of now that has nothing but its verdict.
    pub fn new(kind: EventKind, verdict: Verdict) -> Event {
        Event {
            at: Timestamp::now(),
            kind,
            name: None,
            address: None,
            port: None,
            udp: false,
            verdict,
            bytes_out: 0,
            bytes_in: 0,
            secrets: Vec::new(),
        }
    }

    /// The same, about a name.
    pub fn of_name(mut self, name: Option<HostName>) -> Event {
        self.name = name;
        self
    }

    /// The same, about an address.
    pub fn at_address(mut self, address: impl Into<IpAddr>, port: Option<u16>) -> Event {
        self.address = Some(address.into());
        self.port = port;
        self
    }

    /// The same, about datagrams.
    pub fn of_datagrams(mut self) -> Event {
        self.udp = true;
        self
    }
}

/// Counters of one gateway, since it started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    pub frames_in: u64,
    pub frames_out: u64,
    /// Frames that nobody took: the machine is stopped or gone.
    pub frames_unsent: u64,
    pub malformed: u64,
    pub oversized: u64,
    pub fragments: u64,
    pub spoofed: u64,
    pub dns_queries: u64,
    pub dns_refused: u64,
    pub connections_open: u64,
    pub connections_allowed: u64,
    pub connections_refused: u64,
    pub packets_refused: u64,
    pub requests_refused: u64,
    pub bytes_out: u64,
    pub bytes_in: u64,
    /// Events that were not passed on because there were too many.
    pub events_lost: u64,
}

macro_rules! counters {
    ($($field:ident),*) => {
        /// The same counters while they count.
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
    events_lost
);

/// Counts one more.
pub(crate) fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Counts decisions and passes them on.
#[derive(Debug)]
pub(crate) struct Journal {
    pub counters: Counters,
    pub totals: Arc<Totals>,
    events: Option<mpsc::Sender<Event>>,
    pace: Mutex<Bucket>,
    /// When one of its like may be passed on again.
    sampled: Mutex<HashMap<Verdict, Instant>>,
}

impl Journal {
    pub fn new(events: Option<mpsc::Sender<Event>>, totals: Arc<Totals>) -> Journal {
        let pace = Mutex::new(Bucket::new(EVENTS.0, EVENTS.1));
        Journal { counters: Counters::default(), totals, events, pace, sampled: Mutex::default() }
    }

    /// Counts a decision, and passes it on unless there are too many.
    pub fn write(&self, event: Event) {
        self.count(&event);
        self.pass_on(event);
    }

    /// Counts a decision that a guest can have made without end, and passes one of its like on now and then.
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

    /// Counts a frame that is answered by nobody.
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

    /// Counts a question.
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
