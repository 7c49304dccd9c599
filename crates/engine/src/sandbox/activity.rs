//! What counts as use of a sandbox, and how long it has been idle.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// How many uses of a sandbox are in flight, and when it was last used.
#[derive(Debug)]
pub(crate) struct Activity {
    born: Instant,
    in_use: AtomicUsize,
    last_ms: AtomicU64,
    /// When the calls that are under way began.
    calls: watch::Sender<BTreeMap<u64, Instant>>,
    next_call: AtomicU64,
}

impl Activity {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            born: Instant::now(),
            in_use: AtomicUsize::new(0),
            last_ms: AtomicU64::new(0),
            calls: watch::Sender::default(),
            next_call: AtomicU64::new(0),
        })
    }

    pub(crate) fn begin(self: &Arc<Self>) -> InUse {
        self.begin_with(None)
    }

    /// A use that a hibernation waits for, for a moment.
    pub(crate) fn begin_call(self: &Arc<Self>) -> InUse {
        self.begin_with(Some(self.call()))
    }

    fn begin_with(self: &Arc<Self>, call: Option<Call>) -> InUse {
        self.in_use.fetch_add(1, Ordering::SeqCst);
        InUse { activity: self.clone(), _call: call }
    }

    pub(crate) fn call(self: &Arc<Self>) -> Call {
        let number = self.next_call.fetch_add(1, Ordering::Relaxed);
        self.calls.send_modify(|calls| {
            calls.insert(number, Instant::now());
        });
        Call { activity: self.clone(), number }
    }

    /// Waits until those calls have ended that are under way now, apart from those that began longer ago than `longest`.
    pub(crate) async fn calls_over(&self, longest: Duration) {
        let (mut calls, now) = (self.calls.subscribe(), Instant::now());
        loop {
            let newest = calls.borrow_and_update().values().filter(|began| **began <= now).max().copied();
            let Some(last) = newest.map(|began| began + longest).filter(|last| *last > Instant::now()) else { return };
            // One has ended or begun, or the newest has had its time. The channel cannot close: the sender is here.
            let _ = tokio::time::timeout_at(last, calls.changed()).await;
        }
    }

    fn touch(&self) {
        self.used_at(Instant::now());
    }

    /// Notes a use at this moment.
    pub(crate) fn used_at(&self, moment: Instant) {
        let since_birth = moment.saturating_duration_since(self.born).as_millis() as u64;
        self.last_ms.fetch_max(since_birth, Ordering::SeqCst);
    }

    /// How long the sandbox has been idle: zero while anything is in flight.
    pub(crate) fn idle_for(&self) -> Duration {
        if self.in_use.load(Ordering::SeqCst) > 0 {
            return Duration::ZERO;
        }
        self.born.elapsed().saturating_sub(Duration::from_millis(self.last_ms.load(Ordering::SeqCst)))
    }
}

/// Something is in flight; the sandbox is not idle until this is dropped.
#[derive(Debug)]
pub(crate) struct InUse {
    activity: Arc<Activity>,
    _call: Option<Call>,
}

impl InUse {
    /// For what lasts until somebody ends it, such as a watch: a hibernation does not wait for it.
    pub(crate) fn lasting(self) -> Self {
        self.activity.begin()
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.activity.touch();
        self.activity.in_use.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A call that is under way. A hibernation waits a moment for its end, because a call fails when the machine ends.
#[derive(Debug)]
pub struct Call {
    activity: Arc<Activity>,
    number: u64,
}

impl Drop for Call {
    fn drop(&mut self) {
        self.activity.calls.send_modify(|calls| {
            calls.remove(&self.number);
        });
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_sandbox_in_use_is_not_idle() {
        let activity = Activity::new();
        let in_use = activity.begin();
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(activity.idle_for(), Duration::ZERO);
        drop(in_use);
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(activity.idle_for(), Duration::from_secs(11));
    }

    #[tokio::test(start_paused = true)]
    async fn calls_are_over_when_the_last_one_is_or_all_have_lasted_long() {
        let (activity, longest) = (Activity::new(), Duration::from_secs(1));
        activity.calls_over(longest).await;
        let (call, watch) = (activity.begin_call(), activity.begin_call().lasting());
        assert!(activity.calls_over(longest).now_or_never().is_none());
        drop(call);
        assert!(activity.calls_over(longest).now_or_never().is_some());
        assert_eq!(activity.idle_for(), Duration::ZERO);
        drop(watch);

        let long = activity.begin_call();
        tokio::time::advance(longest).await;
        assert!(activity.calls_over(longest).now_or_never().is_some());
        let (later, began) = (activity.begin_call(), Instant::now());
        activity.calls_over(longest).await;
        assert!((longest..longest * 2).contains(&began.elapsed()));
        drop((long, later));
    }
}
