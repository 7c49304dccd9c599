//! Bytes of one connection: counted, held to the sandbox's limits, and missed when there are none for too long.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::policy::Refusal;
use crate::shared::Shared;

/// Bytes of one connection.
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
        let bytes = bytes as u64;
        self.touch();
        self.bytes_out.fetch_add(bytes, Ordering::Relaxed);
        self.shared.journal.counters.bytes_out.fetch_add(bytes, Ordering::Relaxed);
        self.shared.journal.totals.carried(bytes, 0);
        self.shared.meters.outward(bytes).ok_or(Refusal::BytesOut)
    }

    /// Counts bytes to the guest; answers how long to wait before the next.
    pub fn inward(&self, bytes: usize) -> Duration {
        let bytes = bytes as u64;
        self.touch();
        self.bytes_in.fetch_add(bytes, Ordering::Relaxed);
        self.shared.journal.counters.bytes_in.fetch_add(bytes, Ordering::Relaxed);
        self.shared.journal.totals.carried(0, bytes);
        self.shared.meters.inward(bytes)
    }

    /// Bytes from and to the guest so far.
    pub fn counted(&self) -> (u64, u64) {
        (self.bytes_out.load(Ordering::Relaxed), self.bytes_in.load(Ordering::Relaxed))
    }

    /// Waits until no byte has passed for too long.
    pub async fn idle(&self) {
        loop {
            let touched = self.start + Duration::from_millis(self.touched.load(Ordering::Relaxed));
            let due = touched + self.shared.limits().idle;
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
