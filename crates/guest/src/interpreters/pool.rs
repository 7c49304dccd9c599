//! The warm interpreters of one language: a zygote that forks spares, or spares that are started ahead of time.

use std::collections::VecDeque;
use std::time::Instant;

use sandling_protocol::StreamId;

use super::packages::Packages;

#[derive(Default)]
pub struct Pool {
    pub imports: Vec<String>,
    pub zygote: Option<u64>,
    pub zygote_ready: bool,
    pub failed_imports: Vec<String>,
    pub packages: Packages,
    /// A spare that was not claimed yet.
    pub spare: Option<u64>,
    /// The spare is ready to be claimed.
    pub spare_is_ready: bool,
    /// Spares that the zygote was asked to fork, in order.
    pub forking: VecDeque<u64>,
    pub waiting: Vec<StreamId>,
    pub failures: u32,
    /// When to make the next spare. A timer for an earlier time, perhaps set before a snapshot, is ignored.
    pub refill_at: Option<Instant>,
}

impl Pool {
    pub fn forget_waiting(&mut self, stream: StreamId) {
        self.waiting.retain(|waiting| *waiting != stream);
    }
}
