//! The rate limit on creates and on requests: a token bucket, stored as the time at which it is full again.
//!
//! Counting time instead of tokens needs no fractions, and stays correct when the rate changes.

use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);

/// How many a bucket holds, and how long it takes to fill up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    pub(crate) count: u32,
    pub(crate) period: Duration,
}

impl Rate {
    pub(crate) fn per_minute(count: u32) -> Self {
        Self { count, period: MINUTE }
    }

    /// How long the bucket needs to regain `count`: at most the period, because `count` is at most what it holds.
    fn cost(&self, count: u64) -> Duration {
        Duration::from_nanos((self.period.as_nanos() * u128::from(count) / u128::from(self.count)) as u64)
    }
}

/// When a request that was refused would succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    For(Duration),
    /// The request is larger than a full bucket.
    Never,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Bucket {
    /// When the bucket is full again. A time in the past means that it is full.
    full_at: Instant,
}

impl Bucket {
    pub(crate) fn full(now: Instant) -> Self {
        Self { full_at: now }
    }

    /// Takes all of `count`, or nothing.
    pub(crate) fn take(&mut self, now: Instant, count: u64, rate: Rate) -> Result<(), Wait> {
        if count == 0 {
            return Ok(());
        }
        if count > u64::from(rate.count) {
            return Err(Wait::Never);
        }
        let missing = self.missing(now);
        let cost = rate.cost(count);
        match (missing + cost).checked_sub(rate.period) {
            Some(over) if !over.is_zero() => Err(Wait::For(over)),
            _ => {
                self.full_at = now + missing + cost;
                Ok(())
            }
        }
    }

    /// How many are missing from the bucket, rounded up.
    pub(crate) fn taken(&self, now: Instant, rate: Rate) -> u64 {
        let missing = self.missing(now).as_nanos() * u128::from(rate.count);
        missing.div_ceil(rate.period.as_nanos()) as u64
    }

    fn missing(&self, now: Instant) -> Duration {
        self.full_at.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_full_bucket_allows_a_burst_and_then_refills() {
        let now = Instant::now();
        let mut bucket = Bucket::full(now);
        for _ in 0..6 {
            assert_eq!(bucket.take(now, 1, Rate::per_minute(6)), Ok(()));
        }
        assert_eq!(bucket.taken(now, Rate::per_minute(6)), 6);
        assert_eq!(bucket.take(now, 1, Rate::per_minute(6)), Err(Wait::For(Duration::from_secs(10))));
        assert_eq!(bucket.take(now + Duration::from_secs(10), 1, Rate::per_minute(6)), Ok(()));
    }

    #[test]
    fn a_request_larger_than_the_bucket_never_succeeds() {
        let now = Instant::now();
        assert_eq!(Bucket::full(now).take(now, 7, Rate::per_minute(6)), Err(Wait::Never));
        assert_eq!(Bucket::full(now).take(now, 1, Rate::per_minute(0)), Err(Wait::Never));
        assert_eq!(Bucket::full(now).take(now, 0, Rate::per_minute(0)), Ok(()));
    }

    proptest! {
        #[test]
        fn a_minute_allows_at_most_a_burst_and_a_refill(
            per_minute in 1u32..200, steps in proptest::collection::vec((0u64..5_000, 1u64..20), 1..200),
        ) {
            let start = Instant::now();
            let (mut now, mut bucket, mut granted) = (start, Bucket::full(start), 0);
            for (milliseconds, count) in steps {
                now += Duration::from_millis(milliseconds);
                if bucket.take(now, count, Rate::per_minute(per_minute)).is_ok() {
                    granted += count;
                }
                let refilled = u128::from(per_minute) * (now - start).as_nanos() / MINUTE.as_nanos();
                // Rounding may allow one more.
                prop_assert!(u128::from(granted) <= u128::from(per_minute) + refilled + 1);
            }
        }

        #[test]
        fn a_retry_succeeds_after_the_wait_and_not_before(
            per_minute in 1u32..5000, spent in 0u64..5000, count in 1u64..5000,
        ) {
            let now = Instant::now();
            let mut bucket = Bucket::full(now);
            let _ = bucket.take(now, spent, Rate::per_minute(per_minute));
            if let Err(Wait::For(wait)) = bucket.take(now, count, Rate::per_minute(per_minute)) {
                prop_assert!(wait <= MINUTE);
                let early = now + wait - Duration::from_nanos(1);
                prop_assert!(bucket.take(early, count, Rate::per_minute(per_minute)).is_err());
                prop_assert_eq!(bucket.take(now + wait, count, Rate::per_minute(per_minute)), Ok(()));
            }
        }

        #[test]
        fn a_refusal_costs_nothing(per_minute in 1u32..100, tries in 1usize..100) {
            let now = Instant::now();
            let mut bucket = Bucket::full(now);
            prop_assert_eq!(bucket.take(now, u64::from(per_minute), Rate::per_minute(per_minute)), Ok(()));
            let first = bucket.take(now, 1, Rate::per_minute(per_minute));
            prop_assert!(first.is_err());
            for _ in 0..tries {
                prop_assert_eq!(bucket.take(now, 1, Rate::per_minute(per_minute)), first);
            }
        }
    }
}
