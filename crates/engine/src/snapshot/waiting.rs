//! Saves of one sandbox that wait for the one under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the saves of a sandbox that wait for the one under way.
#[derive(Debug, Default, Clone)]
pub(crate) struct WaitingSaves(Arc<AtomicUsize>);

/// Counts as one of them until it is dropped.
pub(crate) struct WaitingSave(WaitingSaves);

impl WaitingSaves {
    pub(crate) fn one_more(&self) -> WaitingSave {
        self.0.fetch_add(1, Ordering::SeqCst);
        WaitingSave(self.clone())
    }

    pub(crate) fn any(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }
}

impl Drop for WaitingSave {
    fn drop(&mut self) {
        let WaitingSaves(count) = &self.0;
        count.fetch_sub(1, Ordering::SeqCst);
    }
}
