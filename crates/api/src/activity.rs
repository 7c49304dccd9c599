//! Requests in progress, for a server that ends by itself when it is idle.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The running requests, and when the last one ended.
pub(crate) struct Activity {
    under_way: AtomicUsize,
    last: Mutex<Instant>,
}

/// A running request.
pub(crate) struct Busy<'a>(&'a Activity);

impl Activity {
    pub(crate) fn new() -> Self {
        Self { under_way: AtomicUsize::new(0), last: Mutex::new(Instant::now()) }
    }

    pub(crate) fn begin(&self) -> Busy<'_> {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        Busy(self)
    }

    /// Counts as a request that ended now.
    pub(crate) fn touch(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.under_way.load(Ordering::Relaxed) > 0
    }

    /// The time since the last request.
    pub(crate) fn quiet(&self) -> Duration {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
        self.0.touch();
    }
}
