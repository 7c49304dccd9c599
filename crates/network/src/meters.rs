//! The sandbox's limits, and how much of them it has used.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::Duration;

use crate::frame::UDP_HEADERS;
use crate::limits::Limits;
use crate::policy::Refusal;
use crate::rate::Bucket;

/// How far datagrams may run ahead of the bandwidth limit. A network would queue them for about as long.
const AHEAD: Duration = Duration::from_millis(100);

/// Whether a datagram is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passage {
    Now,
    /// The bandwidth limit drops it.
    Dropped,
}

/// The sandbox's limits, and how much of them it has used.
pub(crate) struct Meters {
    limits: RwLock<Limits>,
    outward: Mutex<Bucket>,
    inward: Mutex<Bucket>,
    opening: Mutex<Bucket>,
    /// Bytes from the guest through this gateway and its predecessors, and the limit for them.
    bytes_out: AtomicU64,
    most_bytes_out: AtomicU64,
}

impl Meters {
    pub fn new(limits: &Limits, bytes_out: u64) -> Meters {
        let bucket = |(rate, burst)| Mutex::new(Bucket::new(rate, burst));
        let [outward, inward, opening] = rates(limits).map(bucket);
        let most_bytes_out = AtomicU64::new(limits.bytes_out);
        let limits = RwLock::new(*limits);
        Meters { limits, outward, inward, opening, bytes_out: AtomicU64::new(bytes_out), most_bytes_out }
    }

    /// The current limits.
    pub fn limits(&self) -> Limits {
        *self.limits.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the limits.
    pub fn set_limits(&self, limits: &Limits) {
        *self.limits.write().unwrap_or_else(PoisonError::into_inner) = *limits;
        for (bucket, (rate, burst)) in [&self.outward, &self.inward, &self.opening].into_iter().zip(rates(limits)) {
            bucket.lock().unwrap_or_else(PoisonError::into_inner).change(rate, burst);
        }
        self.most_bytes_out.store(limits.bytes_out, Ordering::Relaxed);
    }

    /// Counts bytes from the guest. Returns how long to wait, or a refusal if the total exceeds its limit.
    pub fn outward(&self, bytes: u64) -> Result<Duration, Refusal> {
        self.count_outward(bytes)?;
        Ok(owe(&self.outward, bytes))
    }

    /// Counts bytes to the guest. Returns how long to wait.
    pub fn inward(&self, bytes: u64) -> Duration {
        owe(&self.inward, bytes)
    }

    /// Counts a datagram from the guest, unless the rate limit drops it. Refuses it if the total exceeds its limit.
    pub fn datagram_outward(&self, bytes: u64) -> Result<Passage, Refusal> {
        let mut bucket = self.outward.lock().unwrap_or_else(PoisonError::into_inner);
        if !bucket.take_within(on_the_line(bytes) as f64, AHEAD) {
            return Ok(Passage::Dropped);
        }
        drop(bucket);
        self.count_outward(bytes)?;
        Ok(Passage::Now)
    }

    fn count_outward(&self, bytes: u64) -> Result<(), Refusal> {
        let total = self.bytes_out.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if total <= self.most_bytes_out.load(Ordering::Relaxed) { Ok(()) } else { Err(Refusal::BytesOut) }
    }

    /// Counts a datagram to the guest. Returns how long to wait.
    pub fn datagram_inward(&self, bytes: u64) -> Duration {
        self.inward(on_the_line(bytes))
    }

    /// Whether another connection may be opened now.
    pub fn opening(&self) -> bool {
        self.opening.lock().unwrap_or_else(PoisonError::into_inner).take(1.0)
    }

    /// Whether the guest has used up its total of bytes.
    pub fn is_spent(&self) -> bool {
        self.bytes_out.load(Ordering::Relaxed) >= self.most_bytes_out.load(Ordering::Relaxed)
    }
}

/// The rate and the burst for bytes from the guest, bytes to it, and new connections.
fn rates(limits: &Limits) -> [(f64, f64); 3] {
    // The burst is a tenth of a second, and at least a full buffer.
    let bytes = |rate: u64| (rate as f64, (rate as f64 / 10.0).max(65_536.0));
    let opening = f64::from(limits.connections_per_second);
    [bytes(limits.bytes_out_per_second), bytes(limits.bytes_in_per_second), (opening, opening * 10.0)]
}

/// What a datagram uses of the bandwidth. It includes the headers, because empty datagrams would be free otherwise.
fn on_the_line(bytes: u64) -> u64 {
    bytes + UDP_HEADERS as u64
}

fn owe(bucket: &Mutex<Bucket>, bytes: u64) -> Duration {
    bucket.lock().unwrap_or_else(PoisonError::into_inner).owe(bytes as f64)
}
