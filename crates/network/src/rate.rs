//! A token bucket: how often, or how much, in a time.

use std::time::Duration;

use tokio::time::Instant;

/// Allows `per_second` on average and `burst` at once.
#[derive(Debug)]
pub struct Bucket {
    per_second: f64,
    burst: f64,
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    /// A full bucket.
    pub fn new(per_second: f64, burst: f64) -> Bucket {
        Bucket { per_second, burst, tokens: burst, filled: Instant::now() }
    }

    /// Allows another rate from now on. What was saved up stays, as far as it fits.
    pub fn change(&mut self, per_second: f64, burst: f64) {
        self.fill();
        (self.per_second, self.burst) = (per_second, burst);
        self.tokens = self.tokens.min(burst);
    }

    /// Takes `amount` if it is there.
    pub fn take(&mut self, amount: f64) -> bool {
        self.take_within(amount, Duration::ZERO)
    }

    /// Takes `amount` if it is there, or would be after no more than `wait`.
    pub fn take_within(&mut self, amount: f64, wait: Duration) -> bool {
        self.fill();
        let enough = self.tokens + self.per_second * wait.as_secs_f64() >= amount;
        if enough {
            self.tokens -= amount;
        }
        enough
    }

    /// Takes `amount` even if it is not there, and says how long to wait until it would have been.
    pub fn owe(&mut self, amount: f64) -> Duration {
        self.fill();
        self.tokens -= amount;
        if self.tokens >= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(-self.tokens / self.per_second).unwrap_or(Duration::from_secs(3600))
    }

    fn fill(&mut self) {
        let now = Instant::now();
        let gained = now.duration_since(self.filled).as_secs_f64() * self.per_second;
        self.tokens = (self.tokens + gained).min(self.burst);
        self.filled = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_then_the_average() {
        let mut bucket = Bucket::new(10.0, 3.0);
        assert_eq!((0..5).filter(|_| bucket.take(1.0)).count(), 3);
        tokio::time::advance(Duration::from_millis(100)).await;
        assert_eq!((0..5).filter(|_| bucket.take(1.0)).count(), 1);
        tokio::time::advance(Duration::from_secs(100)).await;
        assert_eq!((0..5).filter(|_| bucket.take(1.0)).count(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn another_rate_gives_nothing_away() {
        let mut bucket = Bucket::new(10.0, 100.0);
        bucket.change(10.0, 2.0);
        assert_eq!((0..5).filter(|_| bucket.take(1.0)).count(), 2);
        bucket.change(10.0, 100.0);
        assert!(!bucket.take(1.0));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_taken_ahead_is_not_there_later() {
        let (mut bucket, wait) = (Bucket::new(10.0, 3.0), Duration::from_millis(200));
        assert_eq!((0..9).filter(|_| bucket.take_within(1.0, wait)).count(), 5);
        tokio::time::advance(wait).await;
        assert!(!bucket.take(1.0) && bucket.take_within(1.0, wait));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_owed_is_waited_for() {
        let mut bucket = Bucket::new(100.0, 50.0);
        assert_eq!(bucket.owe(50.0), Duration::ZERO);
        assert_eq!(bucket.owe(100.0), Duration::from_secs(1));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!bucket.take(1.0));
    }
}
