//! The accounting of one connection or exchange: byte counts, rate limits and the idle timeout.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::journal::Journal;
use crate::meters::{Meters, Passage};
use crate::policy::Refusal;

/// The bytes of one connection or exchange.
pub(crate) struct Traffic {
    meters: Arc<Meters>,
    journal: Arc<Journal>,
    bytes_out: AtomicU64,
    bytes_in: AtomicU64,
    start: Instant,
    /// When the last byte passed, in milliseconds after `start`.
    touched: AtomicU64,
}

impl Traffic {
    pub fn new(meters: Arc<Meters>, journal: Arc<Journal>) -> Arc<Traffic> {
        Arc::new(Traffic {
            meters,
            journal,
            bytes_out: AtomicU64::new(0),
            bytes_in: AtomicU64::new(0),
            start: Instant::now(),
            touched: AtomicU64::new(0),
        })
    }

    /// Counts bytes from the guest. Returns how long to wait before reading more.
    pub fn outward(&self, bytes: usize) -> Result<Duration, Refusal> {
        self.count_outward(bytes as u64);
        self.meters.outward(bytes as u64)
    }

    /// Counts bytes to the guest. Returns how long to wait before sending more.
    pub fn inward(&self, bytes: usize) -> Duration {
        self.count_inward(bytes as u64);
        self.meters.inward(bytes as u64)
    }

    /// Counts a datagram from the guest, unless the rate limit drops it.
    pub fn datagram_outward(&self, bytes: usize) -> Result<Passage, Refusal> {
        let bytes = bytes as u64;
        let passage = self.meters.datagram_outward(bytes)?;
        if passage == Passage::Now {
            self.count_outward(bytes);
        }
        Ok(passage)
    }

    /// Counts a datagram to the guest. Returns how long to wait before sending more.
    pub fn datagram_inward(&self, bytes: usize) -> Duration {
        let bytes = bytes as u64;
        self.count_inward(bytes);
        self.meters.datagram_inward(bytes)
    }

    fn count_outward(&self, bytes: u64) {
        self.touch();
        self.bytes_out.fetch_add(bytes, Ordering::Relaxed);
        self.journal.counters.bytes_out.fetch_add(bytes, Ordering::Relaxed);
        self.journal.totals.carried(bytes, 0);
    }

    fn count_inward(&self, bytes: u64) {
        self.touch();
        self.bytes_in.fetch_add(bytes, Ordering::Relaxed);
        self.journal.counters.bytes_in.fetch_add(bytes, Ordering::Relaxed);
        self.journal.totals.carried(0, bytes);
    }

    /// Bytes from the guest and to it so far.
    pub fn counted(&self) -> (u64, u64) {
        (self.bytes_out.load(Ordering::Relaxed), self.bytes_in.load(Ordering::Relaxed))
    }

    /// Waits until no byte has passed for `most`, or for the limits' idle timeout if that is shorter.
    pub async fn idle(&self, most: Duration) {
        loop {
            let touched = self.start + Duration::from_millis(self.touched.load(Ordering::Relaxed));
            let due = touched + self.meters.limits().idle.min(most);
            if due <= Instant::now() {
                return;
            }
            sleep_until(due).await;
        }
    }

    fn touch(&self) {
        self.touched.store(self.start.elapsed().as_millis() as u64, Ordering::Relaxed);
    }
}
