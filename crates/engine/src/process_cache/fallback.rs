//! Why machines were restored without a cached process, and how often.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why a machine was restored from device state although there is a cached process for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fallback {
    /// It is of another boot of the host, another QEMU or another version of Sandling.
    Outdated,
    /// A file of it is missing or has another size.
    Damaged,
    /// Another user could have changed it.
    Untrusted,
    /// The machine has volumes, which a cached process cannot have open.
    Volumes,
    /// The process ended before it was ready, or could not be started.
    Failed,
    /// The process was resumed, but it or its guest did not answer in time.
    Silent,
}

impl Fallback {
    pub const ALL: [Self; 6] =
        [Self::Outdated, Self::Damaged, Self::Untrusted, Self::Volumes, Self::Failed, Self::Silent];

    /// The name of the reason in logs, metrics and events.
    pub fn name(self) -> &'static str {
        match self {
            Self::Outdated => "outdated",
            Self::Damaged => "damaged",
            Self::Untrusted => "untrusted",
            Self::Volumes => "volumes",
            Self::Failed => "failed",
            Self::Silent => "silent",
        }
    }
}

/// The number of fallbacks for each reason since the engine started.
#[derive(Debug, Default)]
pub(super) struct FallbackCounters([AtomicU64; Fallback::ALL.len()]);

impl FallbackCounters {
    pub fn add(&self, reason: Fallback) {
        self.0[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub fn all(&self) -> impl Iterator<Item = (Fallback, u64)> {
        Fallback::ALL.into_iter().map(|reason| (reason, self.0[reason as usize].load(Ordering::Relaxed)))
    }
}
