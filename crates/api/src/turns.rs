//! Creates take turns: a host that starts more machines at once than it has processors for is late with all of them,
//! and fails some.

use std::time::Duration;

use axum::http::StatusCode;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::error::ApiError;

/// Machines that may be on their way for each processor: one waits for the disk while the other computes.
const PER_PROCESSOR: usize = 2;
/// A client that would wait longer is told to come back, before it gives up by itself.
const WAIT: Duration = Duration::from_secs(20);
const RETRY_AFTER_SECONDS: u64 = 5;

pub(crate) struct Turns(Semaphore);

impl Turns {
    pub(crate) fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self(Semaphore::new(processors * PER_PROCESSOR))
    }

    /// Waits for a turn, which lasts as long as what is returned.
    pub(crate) async fn take(&self) -> Result<SemaphorePermit<'_>, ApiError> {
        match tokio::time::timeout(WAIT, self.0.acquire()).await {
            Ok(Ok(turn)) => Ok(turn),
            Ok(Err(_)) | Err(_) => Err(busy()),
        }
    }
}

/// Nothing has been made, and the same request may be sent again.
pub(crate) fn busy() -> ApiError {
    let message = "no compute capacity available: too many sandboxes are being made at once";
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "no_capacity", message).retry_after(RETRY_AFTER_SECONDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_too_many_waits_and_is_then_told_to_come_back() {
        let turns = Turns(Semaphore::new(1));
        let turn = turns.take().await.unwrap();
        let refused = turns.take().await.unwrap_err();
        assert_eq!((refused.status, refused.retry_after), (StatusCode::SERVICE_UNAVAILABLE, Some(RETRY_AFTER_SECONDS)));
        drop(turn);
        assert!(turns.take().await.is_ok());
    }
}
