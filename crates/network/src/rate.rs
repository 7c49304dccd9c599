//! A token bucket.

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

    /// Changes the rate. Saved tokens stay, up to the new burst.
    pub fn change(&mut self, per_second: f64, burst: f64) {
        self.fill();
        (self.per_second, self.burst) = (per_second, burst);
        self.tokens = self.tokens.min(burst);
    }

    /// Takes `amount` if there are enough tokens.
    pub fn take(&mut self, amount: f64) -> bool {
        self.take_within(amount, Duration::ZERO)
    }

    /// Takes `amount` if there are enough tokens now or within `wait`.
    pub fn take_within(&mut self, amount: f64, wait: Duration) -> bool {
        self.fill();
        let enough = self.tokens + self.per_second * wait.as_secs_f64() >= amount;
        if enough {
            self.tokens -= amount;
        }
        enough
    }

    /// Takes `amount` even if there are too few tokens. Returns the time until the debt is paid.
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
    async fn after_a_burst_only_the_average_rate_passes() {
        let mut bucket = Bucket::new(10.0, 3.0);
        assert_eq!((0..5).filter(|_| bucket.take(1.0)).count(), 3);
        tokio::time::advance(Duration::from_millis(100)).await;
        assert_eq!((0..5).filter(|_| bucket.take(1.0)).count(), 1);
        tokio::time::advance(Duration::from_secs(100)).await;
        assert_eq!((0..5).filter(|_| bucket.take(1.0)).count(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn changing_the_rate_does_not_refill_the_bucket() {
        let mut bucket = Bucket::new(10.0, 100.0);
        bucket.change(10.0, 2.0);
        assert_eq!((0..5).filter(|_| bucket.take(1.0)).count(), 2);
        bucket.change(10.0, 100.0);
        assert!(!bucket.take(1.0));
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_taken_ahead_are_missing_later() {
        let (mut bucket, wait) = (Bucket::new(10.0, 3.0), Duration::from_millis(200));
        assert_eq!((0..9).filter(|_| bucket.take_within(1.0, wait)).count(), 5);
        tokio::time::advance(wait).await;
        assert!(!bucket.take(1.0) && bucket.take_within(1.0, wait));
    }

    #[tokio::test(start_paused = true)]
    async fn debt_is_returned_as_waiting_time() {
        let mut bucket = Bucket::new(100.0, 50.0);
        assert_eq!(bucket.owe(50.0), Duration::ZERO);
        assert_eq!(bucket.owe(100.0), Duration::from_secs(1));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!bucket.take(1.0));
    }
}
