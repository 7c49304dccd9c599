//! Saves whose machines go on already.
//!
//! One at a time: each stores what differs from the one before. And a copy has QEMU's open disks, with their locks,
//! which QEMU has to be able to take anew for the next.

use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard, oneshot};

use super::info::SnapshotInfo;
use super::save::{SaveTimes, Saving, SnapshotError};
use crate::engine::Engine;
use crate::expiry::InUse;
use crate::sandbox::{Command, Sandbox};
use crate::store::Listed;
use crate::timeline::{Checkpoint, Mark};
use crate::volume::OnVolumes;

/// A sandbox's save that is under way.
#[derive(Default, Clone)]
pub(crate) struct Saves(Arc<Mutex<()>>);

impl Saves {
    /// Waits until nothing is being saved; nothing else is while this is held.
    pub(crate) async fn quiet(&self) -> OwnedMutexGuard<()> {
        self.0.clone().lock_owned().await
    }

    /// The same for the sandbox's own task, which must not wait: what is being saved waits for it.
    pub(crate) fn quiet_now(&self) -> Option<OwnedMutexGuard<()>> {
        self.0.clone().try_lock_owned().ok()
    }
}

/// A machine that was copied, and is to be written.
pub(crate) struct Pending {
    engine: Arc<Engine>,
    sandbox: Arc<Sandbox>,
    saving: Saving,
    pub(crate) checkpoint: Option<Checkpoint>,
    _one_at_a_time: OwnedMutexGuard<()>,
    _in_use: InUse,
}

impl Engine {
    /// Copies a sandbox's machine, which stands still for milliseconds.
    pub(crate) async fn freeze(
        self: &Arc<Self>,
        sandbox: &Arc<Sandbox>,
        name: Option<String>,
        listed: Listed,
        mark: Option<Mark>,
        volumes: Option<OnVolumes>,
    ) -> Result<Pending, SnapshotError> {
        let (engine, sandbox) = (self.clone(), sandbox.clone());
        let one_at_a_time = sandbox.saves.quiet().await;
        let in_use = sandbox.activity.begin();
        let (answer, answered) = oneshot::channel();
        let command = Command::Freeze { name, listed, mark, volumes, answer };
        sandbox.commands.send(command).await.map_err(|_| SnapshotError::CutOff)?;
        let (saving, checkpoint) = answered.await.map_err(|_| SnapshotError::CutOff)??;
        Ok(Pending { engine, sandbox, saving, checkpoint, _one_at_a_time: one_at_a_time, _in_use: in_use })
    }

    pub(crate) async fn save(
        self: &Arc<Self>,
        sandbox: &Arc<Sandbox>,
        name: Option<String>,
        listed: Listed,
        volumes: Option<OnVolumes>,
    ) -> Result<(SnapshotInfo, SaveTimes), SnapshotError> {
        let (engine, sandbox) = (self.clone(), sandbox.clone());
        // In a task of its own: what a caller that goes away has begun is brought to its end.
        let saving = tokio::spawn(async move {
            let frozen = engine.freeze(&sandbox, name, listed, None, volumes).await?;
            frozen.written(None).await
        });
        saving.await.unwrap_or(Err(SnapshotError::CutOff))
    }

    /// Removes behind other work what nobody needs any more.
    pub(crate) fn sweep_behind(self: &Arc<Self>) {
        let engine = self.clone();
        tokio::spawn(async move {
            if let Err(error) = engine.sweep_snapshots().await {
                tracing::warn!(error = &error as &dyn std::error::Error, "snapshots were not swept");
            }
        });
    }
}

impl Pending {
    /// Writes it, and lets the sandbox's task know. A checkpoint is on the timeline when this returns; the oldest may
    /// have gone for it, but not `spared`.
    pub(crate) async fn written(self, spared: Option<u64>) -> Result<(SnapshotInfo, SaveTimes), SnapshotError> {
        let saved = self.saving.write().await?;
        let _held = self.engine.hold_snapshot(&saved.0.id);
        let checkpoint = self.checkpoint.map(|checkpoint| Checkpoint {
            memory_bytes: saved.0.memory_bytes,
            disk_bytes: saved.0.disk_bytes,
            ..checkpoint
        });
        let is_checkpoint = checkpoint.is_some();
        let (answer, answered) = oneshot::channel();
        let known = Command::Saved { snapshot: saved.0.id.clone(), checkpoint, spared, answer };
        self.sandbox.commands.send(known).await.map_err(|_| SnapshotError::CutOff)?;
        match answered.await.map_err(|_| SnapshotError::CutOff)? {
            // It is there; the next save only stores more than it had to.
            Err(error) if !is_checkpoint => {
                tracing::warn!(sandbox = %self.sandbox.id(), error = &error as &dyn std::error::Error, "its last save was not written down");
            }
            known => known?,
        }
        if is_checkpoint {
            self.engine.sweep_behind();
        }
        self.engine.fold_behind(&self.sandbox);
        Ok(saved)
    }
}
