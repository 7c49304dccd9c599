//! What counts as use of a sandbox, and how long it has been idle.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// How many uses of a sandbox are in flight, and when it was last used.
#[derive(Debug)]
pub(crate) struct Activity {
    born: Instant,
    in_use: AtomicUsize,
    last_ms: AtomicU64,
}

impl Activity {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { born: Instant::now(), in_use: AtomicUsize::new(0), last_ms: AtomicU64::new(0) })
    }

    pub(crate) fn begin(self: &Arc<Self>) -> InUse {
        self.in_use.fetch_add(1, Ordering::SeqCst);
        InUse(self.clone())
    }

    fn touch(&self) {
        self.used_at(Instant::now());
    }

    /// Notes a use at this moment.
    pub(crate) fn used_at(&self, moment: Instant) {
        let since_birth = moment.saturating_duration_since(self.born).as_millis() as u64;
        self.last_ms.fetch_max(since_birth, Ordering::SeqCst);
    }

    /// How long the sandbox has been idle: zero while anything is in flight.
    pub(crate) fn idle_for(&self) -> Duration {
        if self.in_use.load(Ordering::SeqCst) > 0 {
            return Duration::ZERO;
        }
        self.born.elapsed().saturating_sub(Duration::from_millis(self.last_ms.load(Ordering::SeqCst)))
    }
}

/// Something is in flight; the sandbox is not idle until this is dropped.
#[derive(Debug)]
pub(crate) struct InUse(Arc<Activity>);

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.touch();
        self.0.in_use.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_sandbox_in_use_is_not_idle() {
        let activity = Activity::new();
        let in_use = activity.begin();
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(activity.idle_for(), Duration::ZERO);
        drop(in_use);
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(activity.idle_for(), Duration::from_secs(11));
    }
}
