//! Forks: copies of a running sandbox, with its memory, its disk, its processes and its live interpreters.
//!
//! The parent is saved, which it notices as a pause of milliseconds, and each child restored from that. A child is
//! handed out only if its guest has proved that it is another: reseeded, with the right clock and its own names.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::instance::Engine;
use super::restore::{Origin, ms};
use crate::model::{EndReason, Lifetime, OnVolumes, SandboxId, SandboxInfo, SandboxSettings, SnapshotInfo, Visibility};
use crate::sandbox::{CreateError, Sandbox, UseError};
use crate::snapshot::{SaveTimes, SnapshotError};

/// How many children one fork can have.
const MOST_CHILDREN: usize = 64;

/// What every child's metadata says about where it comes from. Children of one fork have one tree.
pub const FORK_TREE: &str = "fork_tree_id";
pub const FORK_PARENT: &str = "fork_parent_id";
pub const FORK_INDEX: &str = "fork_index";

#[derive(Debug, thiserror::Error)]
pub enum ForkError {
    #[error("a fork has between 1 and {MOST_CHILDREN} children, not {0}")]
    Children(usize),
    #[error(transparent)]
    Use(#[from] UseError),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error(transparent)]
    Create(#[from] CreateError),
}

/// What the children are to be.
#[derive(Debug, Clone, Default)]
pub struct ForkSpec {
    pub children: usize,
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
    /// Over memory, disk and device state of one moment.
    pub digest: String,
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
    /// How long the parent stood still, and for what.
    pub pause_ms: f64,
    pub prepare_ms: f64,
    pub stop_ms: f64,
    pub state_ms: f64,
    pub disk_ms: f64,
    pub copy_ms: f64,
    /// Behind the running parent.
    pub write_ms: f64,
    /// From the saved parent to the child's own answer.
    pub restore_ms: f64,
}

impl Engine {
    /// Saves a sandbox, which goes on.
    pub async fn snapshot(
        self: &Arc<Self>,
        sandbox: &Arc<Sandbox>,
        name: Option<String>,
        volumes: Option<OnVolumes>,
    ) -> Result<(SnapshotInfo, SaveTimes), SnapshotError> {
        let saved = sandbox.save(&self.parts.snapshots, name, Visibility::Listed, volumes).await?;
        let detail = serde_json::json!({ "snapshot": saved.0.id, "pause_ms": ms(saved.1.freeze.pause) });
        self.parts.events.record(sandbox.id(), &sandbox.info.workspace, "snapshot", detail)?;
        Ok(saved)
    }

    /// Makes copies of a running sandbox. All of them, or none.
    pub async fn fork(self: &Arc<Self>, parent: &Arc<Sandbox>, spec: ForkSpec) -> Result<Vec<Fork>, ForkError> {
        if spec.children == 0 || spec.children > MOST_CHILDREN {
            return Err(ForkError::Children(spec.children));
        }
        let (snapshot, times) = parent.save(&self.parts.snapshots, None, Visibility::Hidden, spec.volumes).await?;
        let _held = self.parts.snapshots.hold(&snapshot.id);
        let mut children = tokio::task::JoinSet::new();
        let tree = uuid::Uuid::new_v4().to_string();
        for index in 0..spec.children {
            let (engine, parent, snapshot, mut spec) = (self.clone(), parent.info(), snapshot.clone(), spec.clone());
            spec.metadata.extend([
                (FORK_TREE.to_owned(), tree.clone()),
                (FORK_PARENT.to_owned(), parent.id.to_string()),
                (FORK_INDEX.to_owned(), index.to_string()),
            ]);
            children.spawn(async move { engine.child(&parent, &snapshot, times, &spec).await });
        }
        let mut forks = Vec::new();
        let mut failed = None;
        while let Some(child) = children.join_next().await {
            match child.unwrap_or(Err(ForkError::Create(CreateError::Closing))) {
                Ok(fork) => forks.push(fork),
                Err(error) => failed = Some(error),
            }
        }
        // Each child has its own copies by now.
        for (_, file) in self.parts.snapshots.saved_volumes(&snapshot) {
            let _ = std::fs::remove_file(file);
        }
        forks.sort_by_key(|fork| fork.sandbox.info.metadata[FORK_INDEX].parse().unwrap_or(0usize));
        let Some(error) = failed else { return Ok(forks) };
        for fork in forks {
            // A child that does not end has logged why.
            let _ = fork.sandbox.end(EndReason::Requested).await;
        }
        Err(error)
    }

    async fn child(
        self: &Arc<Self>,
        parent: &SandboxInfo,
        snapshot: &SnapshotInfo,
        times: SaveTimes,
        spec: &ForkSpec,
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
        let origin = Origin {
            pids: parent.pids,
            parent: Some(parent.id.clone()),
            lifetime,
            workspace: parent.workspace.clone(),
            metadata: spec.metadata.clone(),
            labels: spec.labels.clone(),
            settings: spec.settings.clone(),
            checkpoints: None,
            network,
            volumes: None,
        };
        let (sandbox, confirmed) = self.restore_snapshot(snapshot, origin, env.as_ref(), "forked").await?;
        let restored = begun.elapsed();
        let pages = sandbox.guest_pages().await?;
        let receipt = Receipt {
            parent: parent.id.clone(),
            snapshot: snapshot.id.to_string(),
            digest: snapshot.digest.clone(),
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
}
