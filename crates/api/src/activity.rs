//! Whether anybody needs the server: for one that was started for somebody and ends by itself.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sandling_engine::State;

use crate::app::App;

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Requests under way, and when there last was one.
pub(crate) struct Activity {
    under_way: AtomicUsize,
    last: Mutex<Instant>,
}

/// A request under way.
pub(crate) struct Busy<'a>(&'a Activity);

impl Activity {
    pub(crate) fn new() -> Self {
        Self { under_way: AtomicUsize::new(0), last: Mutex::new(Instant::now()) }
    }

    pub(crate) fn begin(&self) -> Busy<'_> {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        Busy(self)
    }

    fn touch(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn quiet(&self) -> Duration {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
        self.0.touch();
    }
}

impl App {
    /// Over when for so long there was no request, no template was built, and no sandbox ran. What streams without
    /// end follows a sandbox, or may be cut.
    pub async fn idle(&self, after: Duration) {
        loop {
            if self.is_needed() {
                self.activity.touch();
            }
            if self.activity.quiet() >= after {
                return;
            }
            tokio::time::sleep(LOOK_EVERY.min(after)).await;
        }
    }

    fn is_needed(&self) -> bool {
        let runs = |state| !matches!(state, State::Hibernated | State::Ended | State::Unreadable);
        self.activity.under_way.load(Ordering::Relaxed) > 0
            || self.service.builds.any_running()
            || self.engine.list().iter().any(|sandbox| runs(sandbox.state))
    }
}
