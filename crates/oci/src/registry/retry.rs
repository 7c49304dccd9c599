//! When a failed request is tried again.

use std::time::Duration;

use hyper::header::{HeaderMap, RETRY_AFTER};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;

use super::error::RegistryError;
use super::options::Timeouts;

/// A host that cannot be reached is likely misspelled, so the user learns of it soon.
const RETRIES_OF_UNREACHABLE: u32 = 2;

pub(super) struct Backoff<'a> {
    timeouts: &'a Timeouts,
    retries: u32,
}

impl<'a> Backoff<'a> {
    pub fn new(timeouts: &'a Timeouts) -> Self {
        Self { timeouts, retries: 0 }
    }

    /// Pauses and returns the number of the retry, or returns the error if another attempt is of no use.
    pub async fn pause(&mut self, error: RegistryError) -> Result<u32, RegistryError> {
        let most = match error {
            RegistryError::Unreachable { .. } => self.timeouts.retries.min(RETRIES_OF_UNREACHABLE),
            _ => self.timeouts.retries,
        };
        if !error.is_transient() || self.retries >= most {
            return Err(error);
        }
        let mut pause = self.timeouts.backoff * 2_u32.saturating_pow(self.retries);
        if let RegistryError::RateLimited { retry_after: Some(asked), .. } = &error {
            if *asked > self.timeouts.longest_retry_after {
                return Err(error);
            }
            pause = pause.max(*asked);
        }
        self.retries += 1;
        tokio::time::sleep(pause).await;
        Ok(self.retries)
    }
}

/// Parses seconds or a date. A date in the past gives none.
pub(super) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let said = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = said.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = DateTimeParser::new().parse_timestamp(said).ok()?;
    Duration::try_from(date.duration_since(now)).ok()
}
