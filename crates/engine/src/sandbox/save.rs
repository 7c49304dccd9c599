//! Saving a sandbox that keeps running.
//!
//! There is one save at a time. Each stores what differs from the one before. A copy also holds QEMU's open disks with
//! their locks, which QEMU has to take again for the next save.

use std::sync::Arc;

use tokio::sync::{OwnedMutexGuard, oneshot};
use tokio::task::JoinHandle;

use super::activity::InUse;
use super::command::Command;
use super::handle::Sandbox;
use crate::model::{Checkpoint, Mark, SnapshotInfo, SnapshotSpec, Visibility};
use crate::snapshot::{SaveTimes, Saving, SnapshotError, Snapshots, Startable};

/// A copy of a machine that is to be written.
pub(crate) struct Pending {
    snapshots: Arc<Snapshots>,
    sandbox: Arc<Sandbox>,
    saving: Saving,
    pub(crate) checkpoint: Option<Checkpoint>,
    _one_at_a_time: OwnedMutexGuard<()>,
    _in_use: InUse,
}

/// What children can be started from.
pub(crate) enum ForkSave {
    /// Its pages are still being written, by this task.
    Started(Startable, JoinHandle<Result<(SnapshotInfo, SaveTimes), SnapshotError>>),
    Written(SnapshotInfo, SaveTimes),
}

impl Sandbox {
    /// Copies the machine, which stops for milliseconds.
    pub(crate) async fn freeze(
        self: &Arc<Self>,
        snapshots: &Arc<Snapshots>,
        spec: SnapshotSpec,
        visibility: Visibility,
        mark: Option<Mark>,
    ) -> Result<Pending, SnapshotError> {
        let (snapshots, sandbox) = (snapshots.clone(), self.clone());
        let one_at_a_time = self.saves.begin().await;
        let in_use = self.activity.begin();
        let (answer, answered) = oneshot::channel();
        let command = Command::Freeze { spec, visibility, mark, answer };
        self.commands.send(command).await.map_err(|_| SnapshotError::CutOff)?;
        let (saving, checkpoint) = answered.await.map_err(|_| SnapshotError::CutOff)??;
        Ok(Pending { snapshots, sandbox, saving, checkpoint, _one_at_a_time: one_at_a_time, _in_use: in_use })
    }

    /// Saves the sandbox as a snapshot.
    pub(crate) async fn save(
        self: &Arc<Self>,
        snapshots: &Arc<Snapshots>,
        spec: SnapshotSpec,
        visibility: Visibility,
    ) -> Result<(SnapshotInfo, SaveTimes), SnapshotError> {
        let (sandbox, snapshots) = (self.clone(), snapshots.clone());
        // In a task of its own: a save is finished even if the caller goes away.
        let saving = tokio::spawn(async move {
            let frozen = sandbox.freeze(&snapshots, spec, visibility, None).await?;
            frozen.written(None).await
        });
        saving.await.unwrap_or(Err(SnapshotError::CutOff))
    }

    /// Saves the sandbox for its children. Returns as soon as they can be started, if that is before the save is over.
    pub(crate) async fn save_for_children(
        self: &Arc<Self>,
        snapshots: &Arc<Snapshots>,
        spec: SnapshotSpec,
    ) -> Result<ForkSave, SnapshotError> {
        let (sandbox, snapshots) = (self.clone(), snapshots.clone());
        let (started, startable) = oneshot::channel();
        let mut saving = tokio::spawn(async move {
            let frozen = sandbox.freeze(&snapshots, spec, Visibility::Hidden, None).await?;
            frozen.write_telling(None, Some(started)).await
        });
        tokio::select! {
            Ok(startable) = startable => Ok(ForkSave::Started(startable, saving)),
            saved = &mut saving => {
                let (snapshot, times) = saved.unwrap_or(Err(SnapshotError::CutOff))?;
                Ok(ForkSave::Written(snapshot, times))
            }
        }
    }
}

impl Pending {
    /// Writes the copy and tells the sandbox's task. When this returns, a checkpoint is on the timeline. The oldest
    /// checkpoint may be dropped for it, but not `spared`.
    pub(crate) async fn written(self, spared: Option<u64>) -> Result<(SnapshotInfo, SaveTimes), SnapshotError> {
        self.write_telling(spared, None).await
    }

    /// The same. `started` gets the snapshot as soon as machines can be started from it.
    async fn write_telling(
        self,
        spared: Option<u64>,
        started: Option<oneshot::Sender<Startable>>,
    ) -> Result<(SnapshotInfo, SaveTimes), SnapshotError> {
        let (snapshots, id) = (self.snapshots.clone(), self.saving.id().clone());
        let written = self.write_and_tell(spared, started).await;
        if written.is_err() {
            // The sandbox may have ended, and may have swept before this snapshot was there.
            snapshots.sweep_behind(vec![id]);
        }
        written
    }

    async fn write_and_tell(
        self,
        spared: Option<u64>,
        started: Option<oneshot::Sender<Startable>>,
    ) -> Result<(SnapshotInfo, SaveTimes), SnapshotError> {
        let saved = self.saving.write(started).await?;
        let _held = self.snapshots.hold(&saved.0.id);
        let checkpoint = self.checkpoint.map(|checkpoint| Checkpoint {
            memory_bytes: saved.0.memory_bytes,
            disk_bytes: saved.0.disk_bytes,
            ..checkpoint
        });
        let is_checkpoint = checkpoint.is_some();
        let (answer, answered) = oneshot::channel();
        let snapshot = saved.0.has_memory().then(|| saved.0.id.clone());
        let known = Command::Saved { snapshot, checkpoint, spared, answer };
        self.sandbox.commands.send(known).await.map_err(|_| SnapshotError::CutOff)?;
        match answered.await.map_err(|_| SnapshotError::CutOff)? {
            // The snapshot exists; the next save only stores more than it had to.
            Err(error) if !is_checkpoint => {
                tracing::warn!(sandbox = %self.sandbox.id(), error = &error as &dyn std::error::Error, "could not record the last save in the sandbox's row");
            }
            known => known?,
        }
        if is_checkpoint {
            let automatic = self.sandbox.timeline.borrow().automatic().cloned().collect();
            self.snapshots.evict_behind(automatic);
        }
        self.sandbox.fold_behind(&self.snapshots);
        Ok(saved)
    }
}
