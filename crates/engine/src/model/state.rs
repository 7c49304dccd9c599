//! The states of a sandbox, and why it ended.

use serde::{Deserialize, Serialize};

/// Where a sandbox stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Its engine died, and this engine has not taken it over yet. Rows do not say so.
    Orphaned,
    #[serde(alias = "creating")]
    Running,
    /// Its machine stands still because the host's disk is full. Rows and callers see that it runs.
    Stalled,
    Paused,
    /// Saved, without a machine. The next use wakes it.
    Hibernated,
    Ended,
    /// Its row cannot be read. It is left alone until it is removed.
    Unreadable,
}

impl State {
    /// The state as rows and callers see it.
    pub(crate) fn shown(self) -> Self {
        if self == Self::Stalled { Self::Running } else { self }
    }
}

/// Why a sandbox ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    #[error("it was asked to end")]
    Requested,
    #[error("its time to live was over")]
    Ttl,
    #[error("nobody used it for too long")]
    Idle,
    #[error("its guest died: {0}")]
    GuestDied(String),
    #[error("the engine that kept it was closed")]
    EngineClosed,
    /// Its engine died.
    #[error("{0}")]
    Lost(String),
}
