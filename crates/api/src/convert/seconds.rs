//! Durations that clients send in seconds.

use std::time::Duration;

use crate::error::ApiError;

/// The longest TTL or idle timeout of a sandbox.
const MAX_LIFETIME: u64 = 366 * 24 * 3600;
/// The shortest and the longest timeout of a command.
const DEADLINES: std::ops::RangeInclusive<f64> = 0.001..=7.0 * 24.0 * 3600.0;

/// Checks a TTL. The public clients cannot tell 0 from absent, so 0 means the default.
pub(crate) fn lifetime(field: &str, seconds: Option<u64>) -> Result<Option<Duration>, ApiError> {
    match seconds {
        None | Some(0) => Ok(None),
        Some(seconds) if seconds <= MAX_LIFETIME => Ok(Some(Duration::from_secs(seconds))),
        Some(_) => Err(ApiError::bad_request(format!("{field} must be at most {MAX_LIFETIME}"))),
    }
}

/// Checks a command's timeout, which may have a fraction.
pub(crate) fn deadline(field: &str, seconds: Option<f64>) -> Result<Option<Duration>, ApiError> {
    match seconds {
        None => Ok(None),
        Some(seconds) if DEADLINES.contains(&seconds) => Ok(Some(Duration::from_secs_f64(seconds))),
        Some(_) => {
            let (least, most) = (DEADLINES.start(), DEADLINES.end());
            Err(ApiError::bad_request(format!("{field} must be between {least} and {most}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_that_would_overflow_a_clock_are_refused() {
        assert!(lifetime("ttl_seconds", Some(u64::MAX)).is_err());
        for bad in [0.0, -1.0, 1e-300, f64::NAN, f64::INFINITY, 1e300] {
            assert!(deadline("timeout_seconds", Some(bad)).is_err(), "{bad}");
        }
        assert_eq!(deadline("timeout_seconds", Some(0.5)).unwrap(), Some(Duration::from_millis(500)));
        assert_eq!(lifetime("ttl_seconds", Some(0)).unwrap(), None);
    }
}
