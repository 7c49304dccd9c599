//! Bytes of one connection or exchange: counted, held to the sandbox's limits, and missed when there are none for too long.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::policy::Refusal;
use crate::shared::{Passage, Shared};

/// Bytes of one connection or exchange.
pub(crate) struct Traffic {
    shared: Arc<Shared>,
    bytes_out: AtomicU64,
    bytes_in: AtomicU64,
    start: Instant,
    /// Milliseconds after `start` at which the last byte passed.
    touched: AtomicU64,
}

impl Traffic {
    pub fn new(shared: &Arc<Shared>) -> Arc<Traffic> {
        Arc::new(Traffic {
            shared: shared.clone(),
            bytes_out: AtomicU64::new(0),
            bytes_in: AtomicU64::new(0),
            start: Instant::now(),
            touched: AtomicU64::new(0),
        })
    }

    /// Counts bytes from the guest; answers how long to wait before the next.
    pub fn outward(&self, bytes: usize) -> Result<Duration, Refusal> {
        self.count_outward(bytes as u64);
        self.shared.meters.outward(bytes as u64)
    }

    /// Counts bytes to the guest; answers how long to wait before the next.
    pub fn inward(&self, bytes: usize) -> Duration {
        self.count_inward(bytes as u64);
        self.shared.meters.inward(bytes as u64)
    }

    /// Counts a datagram from the guest, if it may pass now; else it is lost.
    pub fn datagram_outward(&self, bytes: usize) -> Result<Passage, Refusal> {
        let bytes = bytes as u64;
        let passage = self.shared.meters.datagram_outward(bytes)?;
        if passage == Passage::Now {
            self.count_outward(bytes);
        }
        Ok(passage)
    }

    /// Counts a datagram to the guest; answers how long to wait before the next.
    pub fn datagram_inward(&self, bytes: usize) -> Duration {
        let bytes = bytes as u64;
        self.count_inward(bytes);
        self.shared.meters.datagram_inward(bytes)
    }

    fn count_outward(&self, bytes: u64) {
        self.touch();
        self.bytes_out.fetch_add(bytes, Ordering::Relaxed);
        self.shared.journal.counters.bytes_out.fetch_add(bytes, Ordering::Relaxed);
        self.shared.journal.totals.carried(bytes, 0);
    }

    fn count_inward(&self, bytes: u64) {
        self.touch();
        self.bytes_in.fetch_add(bytes, Ordering::Relaxed);
        self.shared.journal.counters.bytes_in.fetch_add(bytes, Ordering::Relaxed);
        self.shared.journal.totals.carried(0, bytes);
    }

    /// Bytes from and to the guest so far.
    pub fn counted(&self) -> (u64, u64) {
        (self.bytes_out.load(Ordering::Relaxed), self.bytes_in.load(Ordering::Relaxed))
    }

    /// Waits until no byte has passed for too long: for this time, or what the limits say if that is less.
    pub async fn idle(&self, most: Duration) {
        loop {
            let touched = self.start + Duration::from_millis(self.touched.load(Ordering::Relaxed));
            let due = touched + self.shared.limits().idle.min(most);
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
