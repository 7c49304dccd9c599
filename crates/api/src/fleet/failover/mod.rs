//! Sandboxes with failover: if their node is lost, they wake on another one, where their last point was made.
//!
//! ```text
//! owner                                    ledger                            another node
//!   save, describe, upload
//!   put_point ───────────────────────────▶ failover/ID: owner, epoch, point
//!   … loses its lease: all stand still      node/OWNER disappears ─────────▶ waits
//!                                                                             fetches the point, arrives
//!                                          failover/ID, moved/ID: taker ◀──── take_over
//!   has a lease again, hold ─────────────▶ failover/ID: whose is it?          admits; requests work here
//!   goes on, or throws the machine away
//! ```
//!
//! The taker writes both records in one transaction, when it has everything. So a sandbox always has one owner, and a taker that
//! crashes leaves nothing to undo. A node runs a sandbox only in the epoch in which it held it (`fence.rs`).

mod fence;
mod points;
mod take;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandling_engine::{Engine, SandboxId};
use sandling_fleet::{BootClock, EtcdLedger, Failovers, KnownFailovers, Turns};

use super::member::Fleet;
use crate::app::App;

/// This node's part of failover.
pub(super) struct Failover {
    known: KnownFailovers,
    /// A sandbox that is used gets a new point when its last one is so old.
    every: Duration,
    held: Mutex<HashMap<SandboxId, Hold>>,
    /// Those that stand still.
    fenced: Mutex<HashSet<SandboxId>>,
    /// Why the last attempt to make a point failed.
    problems: Mutex<HashMap<SandboxId, String>>,
}

/// What this process knows of its right to run a sandbox.
#[derive(Clone, Copy, Default)]
struct Hold {
    /// The epoch in which it may. A sandbox of an earlier process runs only after it was held again.
    epoch: Option<i64>,
    /// What the ledger said then.
    turns: Option<Turns>,
}

impl Failover {
    pub(super) fn new(engine: &Engine, every: Duration) -> Self {
        let arrived = engine.arrivals().into_iter().map(|(id, _)| id);
        let held = engine.to_confirm().into_iter().chain(arrived).map(|id| (id, Hold::default())).collect();
        let (known, fenced, problems) = Default::default();
        Self { known, every, held: Mutex::new(held), fenced, problems }
    }

    fn held(&self) -> MutexGuard<'_, HashMap<SandboxId, Hold>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fenced(&self) -> MutexGuard<'_, HashSet<SandboxId>> {
        self.fenced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn problems(&self) -> MutexGuard<'_, HashMap<SandboxId, String>> {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Fleet {
    fn failovers(&self) -> Failovers<'_, EtcdLedger, BootClock> {
        let Self { membership, shared, moves, .. } = self;
        Failovers { membership, shared, moves, known: &self.failover.known }
    }

    /// Makes points of this node's sandboxes, and takes over those of lost nodes. Runs until the future is dropped.
    pub(super) async fn keep_failover(&self, app: &Arc<App>) {
        let failovers = self.failovers();
        tokio::join!(failovers.follow(), self.keep_fence(app), self.keep_points(app), self.take_over_lost(app));
    }

    /// The records that this node follows, for an etcd that has none.
    pub(super) fn failover_records(&self) -> Vec<(String, String)> {
        self.failover.known.records(&self.shared)
    }

    /// When a sandbox's point was made, and why the last attempt to make one failed.
    pub(crate) fn failover_of(&self, id: &SandboxId) -> (Option<String>, Option<String>) {
        let point_at = self.failover.known.get(id.as_str()).map(|record| record.point.at);
        (point_at, self.failover.problems().get(id).cloned())
    }
}
