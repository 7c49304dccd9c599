//! When and how often a failed request to a model is retried.

use std::time::Duration;

use tokio::time::Instant;

use super::error::ModelError;

const TRIES: u32 = 6;
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

pub struct Backoff {
    tries: u32,
    wait: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { tries: 0, wait: FIRST_WAIT }
    }
}

impl Backoff {
    /// The time to wait before the next try. Returns the error if a retry is pointless.
    pub fn after(&mut self, error: ModelError, deadline: Instant) -> Result<Duration, ModelError> {
        if !error.is_passing() {
            return Err(error);
        }
        self.tries += 1;
        if self.tries == TRIES {
            return Err(ModelError::GaveUp { tries: self.tries, last: error.to_string() });
        }
        let after = error.retry_after().unwrap_or(self.wait);
        if after >= deadline.saturating_duration_since(Instant::now()) {
            return Err(ModelError::OutOfTime);
        }
        self.wait = (self.wait * 2).min(LONGEST_WAIT);
        Ok(after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_never_wait_past_the_deadline() {
        let deadline = Instant::now() + Duration::from_secs(60);
        let busy = |retry_after| ModelError::Refused { status: 429, message: String::new(), retry_after };
        let mut backoff = Backoff::default();
        assert_eq!(backoff.after(busy(None), deadline).unwrap(), FIRST_WAIT);
        let soon = Duration::from_secs(5);
        assert_eq!(backoff.after(busy(Some(soon)), deadline).unwrap(), soon);
        for late in [Duration::from_secs(61), Duration::MAX] {
            assert!(matches!(backoff.after(busy(Some(late)), deadline), Err(ModelError::OutOfTime)));
        }
    }
}
