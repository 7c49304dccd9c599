//! The results of steps, stored as snapshots of the build's machine: a cache per workspace, which counts against its quota.
//!
//! The snapshots that were not used for longest make room: if the cache is too large, if they were not used for weeks, or
//! if the quota refuses something.

use std::sync::Arc;

use jiff::Timestamp;
use sandling_engine::store::StoreError;
use sandling_engine::{Engine, Sandbox, SnapshotInfo};

use super::machine::BuildFailure;
use super::registry::{Build, Level};
use super::start::Builds;
use crate::admission::{AdmitError, Resource};
use crate::cache::{CacheEntry, CacheLimits, Freed, superfluous};
use crate::sandboxes::CreateError;
use crate::workspaces::WorkspaceName;

/// How many bytes and steps a workspace's cache may have.
const LIMITS: CacheLimits = CacheLimits { bytes: 16 << 30, entries: 400 };

pub(super) fn stored_key(key: &str) -> String {
    format!("step {key}")
}

/// The result of a step, if an earlier build has stored it.
pub(super) fn find(engine: &Engine, workspace: &str, key: &str) -> Result<Option<SnapshotInfo>, StoreError> {
    engine.snapshots().kept(workspace, &stored_key(key))
}

/// Stores the result of a step. `None` if there is no room for it, which only makes the next build slower.
pub(super) async fn save(
    builds: &Builds,
    build: &Build,
    sandbox: &Arc<Sandbox>,
    key: &str,
) -> Result<Option<SnapshotInfo>, BuildFailure> {
    let Some(workspace) = WorkspaceName::parse(&build.workspace) else { return Ok(None) };
    builds.trim_steps(&build.workspace).await?;
    let reserve = || async {
        Ok::<_, BuildFailure>(builds.sandboxes.reserve_snapshot(&workspace, sandbox).await.map_err(CreateError::from)?)
    };
    match with_room(builds, &build.workspace, reserve).await {
        Ok(reservation) => {
            let saved = builds.engine.snapshot_under_key(sandbox, &stored_key(key)).await?;
            drop(reservation);
            Ok(Some(saved))
        }
        Err(BuildFailure::Create(CreateError::Admit(AdmitError::Refused(_)))) => {
            build.log("the quota has no room for the result of this step; it is not cached", Level::Warn, None);
            Ok(None)
        }
        Err(failure) => Err(failure),
    }
}

/// Does something that the quota may refuse. If it does, cached steps make room, half of them at a time.
pub(super) async fn with_room<T, F: Future<Output = Result<T, BuildFailure>>>(
    builds: &Builds,
    workspace: &str,
    attempt: impl Fn() -> F,
) -> Result<T, BuildFailure> {
    loop {
        match attempt().await {
            Err(BuildFailure::Create(CreateError::Admit(AdmitError::Refused(refused))))
                if refused.what == Resource::DiskMib =>
            {
                let count = builds.engine.snapshots().list_kept(workspace)?.len();
                let freed = builds.evict_steps(workspace, count / 2).await?;
                if freed.steps == 0 {
                    return Err(CreateError::Admit(AdmitError::Refused(refused)).into());
                }
            }
            done => return done,
        }
    }
}

impl Builds {
    /// Removes cached steps: those that were not used for weeks, and then those that were not used for longest, until the
    /// rest is within the limits.
    pub(crate) async fn trim_steps(&self, workspace: &str) -> Result<Freed, StoreError> {
        self.remove_steps(workspace, LIMITS).await
    }

    /// Removes the cached steps that were not used for longest, until so many are left.
    pub(crate) async fn evict_steps(&self, workspace: &str, left: usize) -> Result<Freed, StoreError> {
        self.remove_steps(workspace, CacheLimits { bytes: u64::MAX, entries: left }).await
    }

    async fn remove_steps(&self, workspace: &str, limits: CacheLimits) -> Result<Freed, StoreError> {
        let kept = self.engine.snapshots().list_kept(workspace)?.into_iter().map(|kept| CacheEntry {
            bytes: kept.snapshot.memory_bytes + kept.snapshot.disk_bytes,
            used_at: kept.used_at,
            item: kept.key,
        });
        let keys = superfluous(kept.collect(), limits, Timestamp::now());
        if keys.is_empty() {
            return Ok(Freed::default());
        }
        let bytes = self.engine.snapshots().forget_kept(workspace, &keys).await?;
        Ok(Freed { steps: keys.len(), bytes, ..Freed::default() })
    }
}
