//! What all tasks of one gateway share.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::destination::Destination;
use crate::dns::{DnsServer, Pins};
use crate::event::Journal;
use crate::flow::OWN_PORTS;
use crate::frame::{Ends, UDP_HEADERS};
use crate::host;
use crate::limits::Limits;
use crate::link::Link;
use crate::name::HostName;
use crate::peers::PeerNames;
use crate::policy::{Learned, Mode, Refusal, Rules, Shown};
use crate::rate::Bucket;
use crate::secret::SecretSet;
use crate::tcp::Table;
use crate::tls::Interceptor;
use crate::udp::Exchanges;

/// How far ahead of the bandwidth datagrams may be: as long as a network would let them wait in line.
const AHEAD: Duration = Duration::from_millis(100);

/// What all tasks of one gateway share.
pub(crate) struct Shared {
    pub ends: Ends,
    pub limits: RwLock<Limits>,
    pub link: Link,
    pub journal: Journal,
    pub pins: Pins,
    pub dns: DnsServer,
    pub table: Table,
    pub exchanges: Exchanges,
    pub rules: watch::Sender<Arc<Rules>>,
    pub secrets: watch::Sender<Arc<SecretSet>>,
    pub interceptor: RwLock<Option<Arc<Interceptor>>>,
    pub peers: PeerNames,
    /// When one of them last began or ended something with the guest.
    pub served: Mutex<Option<Instant>>,
    pub learned: Mutex<Learned>,
    pub meters: Meters,
}

/// What becomes of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passage {
    Now,
    /// The line is full.
    Lost,
}

/// What was used of the limits.
pub(crate) struct Meters {
    outward: Mutex<Bucket>,
    inward: Mutex<Bucket>,
    opening: Mutex<Bucket>,
    /// Bytes out of this gateway and those before it, and how many there may be.
    bytes_out: AtomicU64,
    most_bytes_out: AtomicU64,
}

impl Shared {
    /// The limits of this moment.
    pub fn limits(&self) -> Limits {
        *self.limits.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds the sandbox to other limits from now on.
    pub fn limit(&self, limits: Limits) {
        *self.limits.write().unwrap_or_else(PoisonError::into_inner) = limits;
        self.meters.limit(&limits);
        self.dns.limit(&limits);
    }

    /// What opens TLS, if anything does.
    pub fn interceptor(&self) -> Option<Arc<Interceptor>> {
        self.interceptor.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The rules of this moment.
    pub fn rules(&self) -> Arc<Rules> {
        let rules = self.rules.borrow().clone();
        match host::addresses() {
            Ok(host) if host != rules.host => {
                // Open connections to what is the host's own from now on are judged again.
                self.rules.send_modify(|rules| *rules = Arc::new(Rules { host, ..Rules::clone(rules) }));
                self.rules.borrow().clone()
            }
            _ => rules,
        }
    }

    /// How many connections and exchanges of datagrams there are.
    pub fn open(&self) -> usize {
        self.table.count().0 + self.exchanges.count()
    }

    /// When a peer last used the guest: now, while one has a connection to it.
    pub fn served(&self) -> Option<Instant> {
        let serves = self.table.has_dialled(self.ends.gateway_address, &OWN_PORTS) || self.exchanges.have_dialled();
        if serves {
            self.serves_now();
        }
        *self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn serves_now(&self) {
        *self.served.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Whether the guest may have one more, which a peer begins.
    pub fn admits_peer(&self) -> bool {
        self.open() < self.limits().connections && self.meters.opening()
    }

    /// Ends all of them.
    pub fn reset(&self) {
        self.table.reset();
        self.exchanges.reset();
    }

    /// Ends all of them, and lets none begin any more.
    pub fn close(&self) {
        self.table.close();
        self.exchanges.close();
    }

    /// Lets all open connections be judged again.
    pub fn judge_again(&self) {
        self.rules.send_modify(|_| {});
    }

    /// The address that stands for a peer of this name, if there is one.
    pub fn peer_address(&self, name: &HostName) -> Option<Ipv4Addr> {
        self.peers.address(name)
    }

    /// Writes down what was connected to, while learning.
    pub fn learn(&self, to: &Destination, shown: Shown<'_>) {
        if self.rules.borrow().policy.mode != Mode::Learn {
            return;
        }
        let mut learned = self.learned.lock().unwrap_or_else(PoisonError::into_inner);
        learned.connection(to.address, to.port, shown, &to.names);
    }
}

impl Meters {
    pub fn new(limits: &Limits, bytes_out: u64) -> Meters {
        let bucket = |(rate, burst)| Mutex::new(Bucket::new(rate, burst));
        let [outward, inward, opening] = rates(limits).map(bucket);
        let most_bytes_out = AtomicU64::new(limits.bytes_out);
        Meters { outward, inward, opening, bytes_out: AtomicU64::new(bytes_out), most_bytes_out }
    }

    /// Holds to other limits from now on.
    fn limit(&self, limits: &Limits) {
        for (bucket, (rate, burst)) in [&self.outward, &self.inward, &self.opening].into_iter().zip(rates(limits)) {
            bucket.lock().unwrap_or_else(PoisonError::into_inner).change(rate, burst);
        }
        self.most_bytes_out.store(limits.bytes_out, Ordering::Relaxed);
    }

    /// Counts bytes from the guest; answers how long to wait. Refused if there were too many in all.
    pub fn outward(&self, bytes: u64) -> Result<Duration, Refusal> {
        self.count_outward(bytes)?;
        Ok(owe(&self.outward, bytes))
    }

    /// Counts bytes to the guest; answers how long to wait.
    pub fn inward(&self, bytes: u64) -> Duration {
        owe(&self.inward, bytes)
    }

    /// Counts a datagram from the guest if it may pass now; else it is lost. Refused if there were too many bytes in all.
    pub fn datagram_outward(&self, bytes: u64) -> Result<Passage, Refusal> {
        let mut bucket = self.outward.lock().unwrap_or_else(PoisonError::into_inner);
        if !bucket.take_within(on_the_line(bytes) as f64, AHEAD) {
            return Ok(Passage::Lost);
        }
        drop(bucket);
        self.count_outward(bytes)?;
        Ok(Passage::Now)
    }

    fn count_outward(&self, bytes: u64) -> Result<(), Refusal> {
        let total = self.bytes_out.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if total <= self.most_bytes_out.load(Ordering::Relaxed) { Ok(()) } else { Err(Refusal::BytesOut) }
    }

    /// Counts a datagram to the guest; answers how long to wait.
    pub fn datagram_inward(&self, bytes: u64) -> Duration {
        self.inward(on_the_line(bytes))
    }

    /// Whether another connection may be opened now.
    pub fn opening(&self) -> bool {
        self.opening.lock().unwrap_or_else(PoisonError::into_inner).take(1.0)
    }

    /// Whether the guest may send no more bytes at all.
    pub fn is_spent(&self) -> bool {
        self.bytes_out.load(Ordering::Relaxed) >= self.most_bytes_out.load(Ordering::Relaxed)
    }
}

/// Bytes from the guest, bytes to it, new connections: so many a second, and so many at once.
fn rates(limits: &Limits) -> [(f64, f64); 3] {
    // A tenth of a second at once, and never less than a full buffer.
    let bytes = |rate: u64| (rate as f64, (rate as f64 / 10.0).max(65_536.0));
    let opening = f64::from(limits.connections_per_second);
    [bytes(limits.bytes_out_per_second), bytes(limits.bytes_in_per_second), (opening, opening * 10.0)]
}

/// What a datagram takes of the bandwidth: with its headers, else empty ones would be for nothing.
fn on_the_line(bytes: u64) -> u64 {
    bytes + UDP_HEADERS as u64
}

fn owe(bucket: &Mutex<Bucket>, bytes: u64) -> Duration {
    bucket.lock().unwrap_or_else(PoisonError::into_inner).owe(bytes as f64)
}
