//! How often a model that is busy or broken is asked again, and when.

use std::time::Duration;

use tokio::time::Instant;

use super::error::ModelError;

const TRIES: u32 = 6;
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

pub struct Patience {
    tries: u32,
    wait: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { tries: 0, wait: FIRST_WAIT }
    }
}

impl Patience {
    /// After how long to ask again; if that makes no sense, the error that is left.
    pub fn after(&mut self, error: ModelError, deadline: Instant) -> Result<Duration, ModelError> {
        if !error.is_passing() {
            return Err(error);
        }
        self.tries += 1;
        if self.tries == TRIES {
            return Err(ModelError::GaveUp { tries: self.tries, last: error.to_string() });
        }
        let after = error.retry_after().unwrap_or(self.wait);
        if Instant::now() + after >= deadline {
            return Err(ModelError::OutOfTime);
        }
        self.wait = (self.wait * 2).min(LONGEST_WAIT);
        Ok(after)
    }
}
