//! Saving a sandbox that keeps running.
//!
//! There is one save at a time. Each stores what differs from the one before. A copy also holds QEMU's open disks with
//! their locks, which QEMU has to take again for the next save.

use std::sync::Arc;

use tokio::sync::{OwnedMutexGuard, oneshot};

use super::activity::InUse;
use super::command::Command;
use super::handle::Sandbox;
use crate::model::{Checkpoint, Mark, OnVolumes, SnapshotInfo, Visibility};
use crate::snapshot::{SaveTimes, Saving, SnapshotError, Snapshots};

/// A copy of a machine that is to be written.
pub(crate) struct Pending {
    snapshots: Arc<Snapshots>,
    sandbox: Arc<Sandbox>,
    saving: Saving,
    pub(crate) checkpoint: Option<Checkpoint>,
    _one_at_a_time: OwnedMutexGuard<()>,
    _in_use: InUse,
}

impl Sandbox {
    /// Copies the machine, which stops for milliseconds.
    pub(crate) async fn freeze(
        self: &Arc<Self>,
        snapshots: &Arc<Snapshots>,
        name: Option<String>,
        visibility: Visibility,
        mark: Option<Mark>,
        volumes: Option<OnVolumes>,
    ) -> Result<Pending, SnapshotError> {
        let (snapshots, sandbox) = (snapshots.clone(), self.clone());
        let one_at_a_time = self.saves.quiet().await;
        let in_use = self.activity.begin();
        let (answer, answered) = oneshot::channel();
        let command = Command::Freeze { name, visibility, mark, volumes, answer };
        self.commands.send(command).await.map_err(|_| SnapshotError::CutOff)?;
        let (saving, checkpoint) = answered.await.map_err(|_| SnapshotError::CutOff)??;
        Ok(Pending { snapshots, sandbox, saving, checkpoint, _one_at_a_time: one_at_a_time, _in_use: in_use })
    }

    /// Saves the sandbox as a snapshot.
    pub(crate) async fn save(
        self: &Arc<Self>,
        snapshots: &Arc<Snapshots>,
        name: Option<String>,
        visibility: Visibility,
        volumes: Option<OnVolumes>,
    ) -> Result<(SnapshotInfo, SaveTimes), SnapshotError> {
        let (sandbox, snapshots) = (self.clone(), snapshots.clone());
        // In a task of its own: a save is finished even if the caller goes away.
        let saving = tokio::spawn(async move {
            let frozen = sandbox.freeze(&snapshots, name, visibility, None, volumes).await?;
            frozen.written(None).await
        });
        saving.await.unwrap_or(Err(SnapshotError::CutOff))
    }
}

impl Pending {
    /// Writes the copy and tells the sandbox's task. When this returns, a checkpoint is on the timeline. The oldest
    /// checkpoint may be dropped for it, but not `spared`.
    pub(crate) async fn written(self, spared: Option<u64>) -> Result<(SnapshotInfo, SaveTimes), SnapshotError> {
        let (snapshots, id) = (self.snapshots.clone(), self.saving.id().clone());
        let written = self.write_and_tell(spared).await;
        if written.is_err() {
            // The sandbox may have ended, and may have swept before this snapshot was there.
            snapshots.sweep_behind(vec![id]);
        }
        written
    }

    async fn write_and_tell(self, spared: Option<u64>) -> Result<(SnapshotInfo, SaveTimes), SnapshotError> {
        let saved = self.saving.write().await?;
        let _held = self.snapshots.hold(&saved.0.id);
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
            // The snapshot exists; the next save only stores more than it had to.
            Err(error) if !is_checkpoint => {
                tracing::warn!(sandbox = %self.sandbox.id(), error = &error as &dyn std::error::Error, "could not record the last save in the sandbox's row");
            }
            known => known?,
        }
        if is_checkpoint {
            self.snapshots.sweep_behind(Vec::new());
        }
        self.sandbox.fold_behind(&self.snapshots);
        Ok(saved)
    }
}
