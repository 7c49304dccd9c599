//! How long a sandbox may live.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::state::EndReason;

/// How long a sandbox may live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lifetime {
    /// The time to live is counted from here.
    pub from: Timestamp,
    pub ttl_seconds: Option<u64>,
    pub idle_seconds: Option<u64>,
    /// Neither limit applies.
    pub persistent: bool,
    #[serde(default)]
    pub sleep: Sleep,
}

/// What hibernation means for a sandbox's time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sleep {
    /// Its time to live does not pass while it hibernates, and begins anew when it wakes.
    pub is_free: bool,
    /// When its time to live is over it hibernates, and does not end.
    pub at_the_end: bool,
    /// What of it is saved then.
    #[serde(default)]
    pub keeps: Kept,
}

/// What of a sandbox is saved when it hibernates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    #[default]
    Everything,
    /// The disk without the memory. The sandbox boots when it wakes.
    Disk,
}

/// What is to change in a lifetime; the inner `None` means without limit.
#[derive(Debug, Clone, Copy, Default)]
pub struct LifetimeChange {
    pub ttl_seconds: Option<Option<u64>>,
    pub idle_seconds: Option<Option<u64>>,
    pub persistent: Option<bool>,
}

impl Lifetime {
    /// A new time to live counts from now.
    pub(crate) fn changed(self, change: LifetimeChange) -> Self {
        Self {
            from: if change.ttl_seconds.is_some() { Timestamp::now() } else { self.from },
            ttl_seconds: change.ttl_seconds.unwrap_or(self.ttl_seconds),
            idle_seconds: change.idle_seconds.unwrap_or(self.idle_seconds),
            persistent: change.persistent.unwrap_or(self.persistent),
            sleep: self.sleep,
        }
    }

    /// How long is left as things stand, and why it is over then; nothing if it never is.
    pub(crate) fn left(&self, idle_for: Duration) -> Option<(Duration, EndReason)> {
        if self.persistent {
            return None;
        }
        let age = Duration::try_from(self.from.until(Timestamp::now()).ok()?).unwrap_or_default();
        let left = |limit: Option<u64>, used: Duration| Some(Duration::from_secs(limit?).saturating_sub(used));
        let ttl = left(self.ttl_seconds, age).map(|left| (left, EndReason::Ttl));
        let idle = left(self.idle_seconds, idle_for).map(|left| (left, EndReason::Idle));
        [ttl, idle].into_iter().flatten().min_by_key(|(left, _)| *left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lifetime(ttl_seconds: Option<u64>, idle_seconds: Option<u64>, age_seconds: i64) -> Lifetime {
        let from = Timestamp::now() - jiff::SignedDuration::from_secs(age_seconds);
        Lifetime { from, ttl_seconds, idle_seconds, persistent: false, sleep: Sleep::default() }
    }

    #[test]
    fn an_idle_sandbox_expires() {
        let (left, reason) = lifetime(None, Some(10), 100).left(Duration::from_secs(11)).unwrap();
        assert_eq!((left, reason), (Duration::ZERO, EndReason::Idle));
    }

    #[test]
    fn the_wall_clock_limit_holds_however_busy_it_is() {
        let (left, reason) = lifetime(Some(5), Some(50), 6).left(Duration::ZERO).unwrap();
        assert_eq!((left, reason), (Duration::ZERO, EndReason::Ttl));
    }

    #[test]
    fn a_persistent_one_never_expires_and_can_be_made_to() {
        let kept =
            lifetime(Some(5), Some(5), 60).changed(LifetimeChange { persistent: Some(true), ..Default::default() });
        assert_eq!(kept.left(Duration::from_secs(99)), None);
        let change = LifetimeChange { persistent: Some(false), ttl_seconds: Some(Some(30)), idle_seconds: Some(None) };
        let (left, reason) = kept.changed(change).left(Duration::ZERO).unwrap();
        assert!(left > Duration::from_secs(28) && reason == EndReason::Ttl, "{left:?}");
    }
}
