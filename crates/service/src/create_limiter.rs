//! Limits how many sandboxes are created at once, and shares these places between the workspaces.
//!
//! A host that starts more machines than its processors can carry is slow with all of them, and some of them fail.

use std::sync::Arc;
use std::time::Duration;

use sandling_engine::{FairSlots, Slot};

use crate::workspaces::WorkspaceName;

/// Creates that may run at once for each processor: one waits for the disk while the other computes.
const PER_PROCESSOR: usize = 2;
/// A request that waited this long is refused, before its client gives up by itself.
const WAIT: Duration = Duration::from_secs(20);

pub struct CreateLimiter(Arc<FairSlots>);

/// Too many sandboxes are being created. Nothing was made, and the same request may be sent again.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("no compute capacity available: too many sandboxes are being made at once")]
pub struct Busy;

impl Busy {
    pub const RETRY_AFTER: Duration = Duration::from_secs(5);
}

impl CreateLimiter {
    pub(crate) fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let total = processors * PER_PROCESSOR;
        Self(FairSlots::new(total, total))
    }

    /// Waits until a create of this workspace may begin. Drop the slot when it has ended.
    pub async fn acquire(&self, workspace: &WorkspaceName) -> Result<Slot, Busy> {
        tokio::time::timeout(WAIT, self.0.acquire(workspace.as_str())).await.map_err(|_| Busy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_create_beyond_the_limit_waits_and_is_then_refused() {
        let limiter = CreateLimiter(FairSlots::new(1, 1));
        let workspace = WorkspaceName::default();
        let slot = limiter.acquire(&workspace).await.unwrap();
        assert!(limiter.acquire(&workspace).await.is_err());
        drop(slot);
        assert!(limiter.acquire(&workspace).await.is_ok());
    }
}
