//! Limits how many sandboxes are created at once.
//!
//! A host that starts more machines than its processors can carry is slow with all of them, and some of them fail.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

/// Creates that may run at once for each processor: one waits for the disk while the other computes.
const PER_PROCESSOR: usize = 2;
/// A request that waited this long is refused, before its client gives up by itself.
const WAIT: Duration = Duration::from_secs(20);

pub struct CreateLimiter(Semaphore);

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
        Self(Semaphore::new(processors * PER_PROCESSOR))
    }

    /// Waits until the create may begin. Drop the permit when it has ended.
    pub async fn acquire(&self) -> Result<SemaphorePermit<'_>, Busy> {
        match tokio::time::timeout(WAIT, self.0.acquire()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(Busy),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_create_beyond_the_limit_waits_and_is_then_refused() {
        let limiter = CreateLimiter(Semaphore::new(1));
        let permit = limiter.acquire().await.unwrap();
        assert!(limiter.acquire().await.is_err());
        drop(permit);
        assert!(limiter.acquire().await.is_ok());
    }
}
