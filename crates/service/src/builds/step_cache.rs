//! The results of steps, stored as snapshots of the build's machine: a cache per workspace, which counts against its quota.
//!
//! The snapshots that were not used for longest make room: if the cache is too large, if they were not used for weeks, or
//! if the quota refuses something.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use sandling_engine::store::StoreError;
use sandling_engine::{Engine, KeptSnapshot, Sandbox, SnapshotInfo};

use super::machine::BuildFailure;
use super::registry::{Build, Level};
use super::start::Builds;
use crate::admission::{AdmitError, Resource};
use crate::sandboxes::CreateError;
use crate::workspaces::WorkspaceName;

/// How many bytes and steps a workspace's cache may have.
const MOST_BYTES: u64 = 16 << 30;
const MOST_STEPS: usize = 400;
/// Steps that were not used for so long are removed.
const UNUSED_FOR: Duration = Duration::from_secs(14 * 24 * 3600);

/// What removing cached steps has freed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Freed {
    pub steps: usize,
    pub bytes: u64,
}

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
    builds.trim_steps(&build.workspace, MOST_BYTES, MOST_STEPS).await?;
    let reserve = || async {
        Ok::<_, BuildFailure>(builds.sandboxes.reserve_snapshot(&workspace, sandbox).map_err(CreateError::from)?)
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
                let freed = builds.trim_steps(workspace, u64::MAX, count / 2).await?;
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
    pub async fn trim_steps(&self, workspace: &str, most_bytes: u64, most_steps: usize) -> Result<Freed, StoreError> {
        let kept: Vec<_> = self.engine.snapshots().list_kept(workspace)?.into_iter().map(CachedStep::from).collect();
        let keys = superfluous(&kept, most_bytes, most_steps, Timestamp::now());
        if keys.is_empty() {
            return Ok(Freed::default());
        }
        let bytes = self.engine.snapshots().forget_kept(workspace, &keys).await?;
        Ok(Freed { steps: keys.len(), bytes })
    }
}

/// A snapshot in the cache, as far as it matters for its removal.
struct CachedStep {
    key: String,
    bytes: u64,
    used_at: Timestamp,
}

impl From<KeptSnapshot> for CachedStep {
    fn from(kept: KeptSnapshot) -> Self {
        let bytes = kept.snapshot.memory_bytes + kept.snapshot.disk_bytes;
        Self { key: kept.key, bytes, used_at: kept.used_at }
    }
}

/// The keys to forget. `kept` begins with the step that was not used for longest.
fn superfluous(kept: &[CachedStep], most_bytes: u64, most_steps: usize, now: Timestamp) -> Vec<String> {
    let (mut bytes, mut steps) = (kept.iter().map(|step| step.bytes).sum::<u64>(), kept.len());
    let mut keys = Vec::new();
    for step in kept {
        let unused_for = now.duration_since(step.used_at).unsigned_abs();
        if bytes <= most_bytes && steps <= most_steps && unused_for < UNUSED_FOR {
            break;
        }
        bytes -= step.bytes;
        steps -= 1;
        keys.push(step.key.clone());
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_that_were_not_used_for_longest_go_first() {
        let now = Timestamp::now();
        let step = |key: &str, days: i64| CachedStep {
            key: key.to_owned(),
            bytes: 10,
            used_at: Timestamp::from_second(now.as_second() - days * 24 * 3600).unwrap(),
        };
        let kept = [step("ancient", 20), step("old", 3), step("new", 1)];
        assert_eq!(superfluous(&kept, 100, 10, now), ["ancient"]);
        assert_eq!(superfluous(&kept, 15, 10, now), ["ancient", "old"]);
        assert_eq!(superfluous(&kept, 100, 1, now), ["ancient", "old"]);
        assert_eq!(superfluous(&kept, 0, 0, now).len(), 3);
        assert!(superfluous(&kept[1..], 20, 2, now).is_empty());
    }
}
