//! Forks: copies of a running sandbox, with its memory, its disk, its processes and its live interpreters.
//!
//! The parent is saved, which it notices as a pause of milliseconds, and each child restored from that. Children can also
//! be restored from a checkpoint of the parent, which then notices nothing. A child is handed out only if its guest has
//! proved that it is another: reseeded, with the right clock and its own names.
//!
//! Children that are resumed from a cached process do not wait until the parent's pages are written: each waits only for
//! the pages that it uses. If the pages cannot all be written, because the disk or the parent's machine fails, the children
//! end and say why.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::task::JoinHandle;
use tracing::Instrument;

use super::instance::Engine;
use super::restore::{Origin, ms};
use crate::machine::PagesWritten;
use crate::model::{
    EndReason, ForkPlace, Lifetime, OnVolumes, SandboxId, SandboxInfo, SandboxSettings, SnapshotInfo, SnapshotSpec,
    TimelineError, Visibility,
};
use crate::sandbox::{CreateError, ForkSave, Sandbox, UseError};
use crate::snapshot::{HeldSnapshot, SaveTimes, SnapshotError};
use crate::trace::step;

/// How many children one fork can have.
const MOST_CHILDREN: usize = 64;

#[derive(Debug, thiserror::Error)]
pub enum ForkError {
    #[error("a fork has between 1 and {MOST_CHILDREN} children, not {0}")]
    Children(usize),
    #[error(transparent)]
    Use(#[from] UseError),
    #[error(transparent)]
    Checkpoint(#[from] TimelineError),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error(transparent)]
    Create(#[from] CreateError),
}

/// What the children are to be.
#[derive(Debug, Clone, Default)]
pub struct ForkSpec {
    pub children: usize,
    /// The number or name of the parent's checkpoint that they start at; absent means now.
    pub at: Option<String>,
    /// How long each may live; absent means as long as the parent was given.
    pub ttl: Option<Duration>,
    pub idle: Option<Duration>,
    pub persistent: bool,
    pub metadata: BTreeMap<String, String>,
    pub labels: BTreeMap<String, String>,
    pub settings: SandboxSettings,
    /// Variables for what is started in them, instead of the parent's; what runs already has its own.
    pub env: Option<BTreeMap<String, String>>,
    /// Whether they may use the parent's secrets. They have its policy in any case.
    pub secrets: bool,
    /// What becomes of the parent's volumes. If it has any, it must be said.
    pub volumes: Option<OnVolumes>,
}

/// What the children are restored from.
struct SavedParent {
    snapshot: SnapshotInfo,
    times: SaveTimes,
    checkpoint: Option<u64>,
    /// Its pages, if they are still being written.
    unwritten: Option<PagesWritten>,
    _held: HeldSnapshot,
}

/// Finishes the save of a parent.
type Finishing = JoinHandle<Result<(SnapshotInfo, SaveTimes), SnapshotError>>;

/// A child, and how it came to be.
pub struct Fork {
    pub sandbox: Arc<Sandbox>,
    pub receipt: Receipt,
}

/// What a fork can prove.
#[derive(Debug, Clone, Serialize)]
pub struct Receipt {
    pub parent: SandboxId,
    pub snapshot: String,
    /// The checkpoint that the child started at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<u64>,
    /// Over memory, disk and device state of one moment. Absent if the parent's pages were still being written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The guest has shown that its kernel and every interpreter that listens were given new randomness.
    pub reseeded: bool,
    pub clock_error_ms: f64,
    /// Pages of the parent that all children share, and were stored once for them.
    pub stored_bytes: u64,
    pub disk_bytes: u64,
    /// Pages of the child's memory that it shares with its parent and siblings, and those that it has written by the
    /// time it is handed out.
    pub pages_shared: u64,
    pub pages_copied: u64,
    /// How long the parent stood still, and for what. All of it is 0 for a fork of a checkpoint.
    pub pause_ms: f64,
    pub prepare_ms: f64,
    pub stop_ms: f64,
    pub state_ms: f64,
    pub disk_ms: f64,
    pub copy_ms: f64,
    /// Behind the running parent, until the children could be started.
    pub write_ms: f64,
    /// From the saved parent to the child's own answer.
    pub restore_ms: f64,
}

impl Engine {
    /// Saves a sandbox, which goes on.
    pub async fn snapshot(
        self: &Arc<Self>,
        sandbox: &Arc<Sandbox>,
        spec: SnapshotSpec,
    ) -> Result<(SnapshotInfo, SaveTimes), SnapshotError> {
        let saved = sandbox.save(&self.parts.snapshots, spec, Visibility::Listed).await?;
        let detail = serde_json::json!({ "snapshot": saved.0.id, "pause_ms": ms(saved.1.freeze.pause) });
        self.parts.events.record(sandbox.id(), &sandbox.info.workspace, "snapshot", detail)?;
        Ok(saved)
    }

    /// Saves a sandbox, which goes on, and keeps the snapshot under a key without listing it.
    pub async fn snapshot_under_key(
        self: &Arc<Self>,
        sandbox: &Arc<Sandbox>,
        key: &str,
    ) -> Result<SnapshotInfo, SnapshotError> {
        let (saved, _) = sandbox.save(&self.parts.snapshots, SnapshotSpec::default(), Visibility::Hidden).await?;
        // The sandbox stands on the snapshot, so nobody has swept it meanwhile.
        self.parts.snapshots.keep(&sandbox.info.workspace, key, &saved.id)?;
        Ok(saved)
    }

    /// Makes copies of a running sandbox, or of one of its checkpoints. All of them, or none.
    pub async fn fork(self: &Arc<Self>, parent: &Arc<Sandbox>, spec: ForkSpec) -> Result<Vec<Fork>, ForkError> {
        let (engine, parent) = (self.clone(), parent.clone());
        // In a task of its own: a caller that goes away must not leave children whose memory nobody watches.
        let forking = tokio::spawn(async move { engine.fork_inner(&parent, spec).await }.in_current_span());
        forking.await.unwrap_or(Err(ForkError::Create(CreateError::Closing)))
    }

    async fn fork_inner(self: &Arc<Self>, parent: &Arc<Sandbox>, spec: ForkSpec) -> Result<Vec<Fork>, ForkError> {
        if spec.children == 0 || spec.children > MOST_CHILDREN {
            return Err(ForkError::Children(spec.children));
        }
        let _for_the_children = self.reserve_disk(parent.info.disk_mib, spec.children)?;
        let (saved, finishing) = match &spec.at {
            Some(at) => (self.at_checkpoint(parent, at).await?, None),
            None => self.save_parent(parent, spec.volumes).instrument(step!("fork.save")).await?,
        };
        let saved = Arc::new(saved);
        let mut children = tokio::task::JoinSet::new();
        let tree = uuid::Uuid::new_v4().to_string();
        for index in 0..spec.children {
            let (engine, parent, saved, spec) = (self.clone(), parent.info(), saved.clone(), spec.clone());
            let place = ForkPlace { tree: tree.clone(), index };
            let child = async move { engine.child(&parent, &saved, &spec, place).await };
            children.spawn(child.instrument(step!("fork.child")));
        }
        let mut forks = Vec::new();
        let mut failed = None;
        while let Some(child) = children.join_next().await {
            match child.unwrap_or(Err(ForkError::Create(CreateError::Closing))) {
                Ok(fork) => forks.push(fork),
                Err(error) => failed = Some(error),
            }
        }
        // Each child has its own copies by now. Those of a checkpoint stay for a rewind.
        if saved.checkpoint.is_none() {
            for (_, file) in self.parts.snapshots.saved_volumes(&saved.snapshot) {
                let _ = std::fs::remove_file(file);
            }
        }
        forks.sort_by_key(|fork| fork.sandbox.info.fork.as_ref().map(|place| place.index));
        if let Some((finishing, pages)) = finishing.zip(saved.unwritten.clone()) {
            if failed.is_none() && !finishing.is_finished() {
                let children = forks.iter().map(|fork| fork.sandbox.id().clone()).collect();
                tokio::spawn(Self::end_unless_written(Arc::downgrade(self), saved, finishing, children));
                return Ok(forks);
            }
            match finishing.await.unwrap_or(Err(SnapshotError::CutOff)) {
                Ok((snapshot, _)) => {
                    forks.iter_mut().for_each(|fork| fork.receipt.digest = Some(snapshot.digest.clone()));
                }
                Err(error) if !pages.wait().await => failed = Some(error.into()),
                // The parent has ended, and could not note the save. Its pages are written.
                Err(_) => {}
            }
        }
        let Some(error) = failed else { return Ok(forks) };
        for fork in forks {
            // A child that does not end has logged why.
            let _ = fork.sandbox.end(EndReason::Requested).await;
        }
        self.let_go_of(saved);
        Err(error)
    }

    /// Saves the parent as it is now.
    async fn save_parent(
        &self,
        parent: &Arc<Sandbox>,
        volumes: Option<OnVolumes>,
    ) -> Result<(SavedParent, Option<Finishing>), ForkError> {
        let saved = parent
            .save_for_children(&self.parts.snapshots, SnapshotSpec { volumes, ..SnapshotSpec::default() })
            .await?;
        let (snapshot, times, unwritten, finishing) = match saved {
            ForkSave::Started(start, finishing) => (start.snapshot, start.times, Some(start.pages), Some(finishing)),
            ForkSave::Written(snapshot, times) => (snapshot, times, None, None),
        };
        let _held = self.parts.snapshots.hold(&snapshot.id);
        Ok((SavedParent { snapshot, times, checkpoint: None, unwritten, _held }, finishing))
    }

    /// The snapshot of one of the parent's checkpoints.
    async fn at_checkpoint(&self, parent: &Sandbox, at: &str) -> Result<SavedParent, ForkError> {
        let timeline = self.timeline(parent).await;
        let checkpoint = timeline.find(at)?;
        let held = self.parts.snapshots.hold(&checkpoint.snapshot);
        // Others may have pushed it out of the timeline before it was held.
        let found = self.parts.snapshots.get(&checkpoint.snapshot).map_err(SnapshotError::from)?;
        let snapshot = found.ok_or_else(|| timeline.pruned(checkpoint.number))?;
        let (times, checkpoint) = (SaveTimes::default(), Some(checkpoint.number));
        Ok(SavedParent { snapshot, times, checkpoint, unwritten: None, _held: held })
    }

    async fn child(
        self: &Arc<Self>,
        parent: &SandboxInfo,
        saved: &SavedParent,
        spec: &ForkSpec,
        place: ForkPlace,
    ) -> Result<Fork, ForkError> {
        let begun = Instant::now();
        let ttl_seconds = spec.ttl.map(|ttl| ttl.as_secs()).or(parent.lifetime.ttl_seconds);
        let lifetime = Lifetime {
            from: jiff::Timestamp::now(),
            ttl_seconds: Some(ttl_seconds.unwrap_or(self.config.default_ttl.as_secs())),
            idle_seconds: spec.idle.map(|idle| idle.as_secs()),
            persistent: spec.persistent,
            sleep: parent.lifetime.sleep,
        };
        let network = self.parts.networks.inherit(parent, spec.secrets).map_err(CreateError::from)?;
        let mut env = spec.env.clone();
        if let Some(env) = &mut env {
            env.extend(network.variables());
        }
        let variables = match &env {
            Some(env) => env.clone(),
            None => self.parts.networks.variables(parent).map_err(CreateError::from)?,
        };
        let origin = Origin {
            name: None,
            pids: parent.pids,
            parent: Some(parent.id.clone()),
            fork: Some(place),
            lifetime,
            workspace: parent.workspace.clone(),
            metadata: spec.metadata.clone(),
            labels: spec.labels.clone(),
            settings: spec.settings.clone(),
            checkpoints: None,
            network,
            volumes: None,
            variables,
            unwritten: saved.unwritten.clone(),
        };
        let SavedParent { snapshot, times, checkpoint, .. } = saved;
        let (sandbox, confirmed) = self.restore_snapshot(snapshot, origin, env.as_ref(), "forked").await?;
        let restored = begun.elapsed();
        let pages = sandbox.guest_pages().await?;
        let receipt = Receipt {
            parent: parent.id.clone(),
            snapshot: snapshot.id.to_string(),
            checkpoint: *checkpoint,
            digest: Some(snapshot.digest.clone()).filter(|digest| !digest.is_empty()),
            reseeded: confirmed.reseeded,
            clock_error_ms: ms(confirmed.clock_error),
            stored_bytes: snapshot.memory_bytes,
            disk_bytes: snapshot.disk_bytes,
            pages_shared: pages.shared,
            pages_copied: pages.copied,
            pause_ms: ms(times.freeze.pause),
            prepare_ms: ms(times.prepare),
            stop_ms: ms(times.freeze.stop),
            state_ms: ms(times.freeze.state),
            disk_ms: ms(times.freeze.disk),
            copy_ms: ms(times.freeze.copy),
            write_ms: ms(times.write),
            restore_ms: ms(restored),
        };
        Ok(Fork { sandbox, receipt })
    }

    /// Ends the children of a parent if its pages cannot be written: they would wait for them forever. It keeps no engine
    /// alive: one that is closed has let go of its machines, and another may have taken them over.
    async fn end_unless_written(
        engine: Weak<Self>,
        saved: Arc<SavedParent>,
        finishing: Finishing,
        children: Vec<SandboxId>,
    ) {
        let Some(pages) = saved.unwritten.clone() else { return };
        if pages.wait().await {
            return;
        }
        let Err(error) = finishing.await.unwrap_or(Err(SnapshotError::CutOff)) else { return };
        let Some(engine) = engine.upgrade() else { return };
        let why = format!("the memory of the sandbox that it was forked from could not be written: {error}");
        for child in children.iter().filter_map(|id| engine.get(id)) {
            tracing::error!(sandbox = %child.id(), error = &error as &dyn std::error::Error, "a child of a fork ends, because its parent's pages could not be written");
            // A child that does not end has logged why.
            let _ = child.end(EndReason::Lost(why.clone())).await;
        }
        engine.let_go_of(saved);
    }

    /// Removes what is left of a save that failed, or that has no children. Nothing could remove it while it was held.
    fn let_go_of(&self, saved: Arc<SavedParent>) {
        let id = saved.snapshot.id.clone();
        drop(saved);
        self.parts.snapshots.sweep_behind(vec![id]);
    }
}
