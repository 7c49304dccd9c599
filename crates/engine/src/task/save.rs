//! Saving a machine that keeps running, and copying its volumes.

use std::path::Path;
use std::time::Duration;

use sandling_vmm::machine::Afterwards;

use super::start::SandboxTask;
use crate::lifecycle::{self, Refused, Request};
use crate::machine::Live;
use crate::model::{
    Cause, Checkpoint, Kept, Mark, Moving, OnVolumes, SandboxInfo, SnapshotId, SnapshotSpec, Standing, State,
    Visibility,
};
use crate::snapshot::{Save, Saving, SnapshotError, mend};
use crate::volume::{self, VolumeError};

/// A guest that takes longer writes the rest out after it wakes.
pub(super) const WRITTEN_WITHIN: Duration = Duration::from_secs(15);

impl SandboxTask {
    /// Stops the machine while it is copied. A paused machine stays paused.
    pub(super) async fn freeze(
        &mut self,
        spec: SnapshotSpec,
        visibility: Visibility,
        mark: Option<Mark>,
    ) -> Result<(Saving, Option<Checkpoint>), SnapshotError> {
        let state = self.phase.borrow().state();
        let SnapshotSpec { name, volumes, kept } = spec;
        lifecycle::decide(state, &Request::Save(kept))?;
        let volumes = match volumes {
            _ if self.info.volumes.is_empty() => Vec::new(),
            None if mark.is_some() => return Err(VolumeError::NoCheckpoints.into()),
            None => return Err(VolumeError::NotSaid.into()),
            Some(OnVolumes::Detach) if kept == Kept::Disk => Vec::new(),
            Some(_) if kept == Kept::Disk => return Err(VolumeError::OnlyDisk.into()),
            Some(then) => volume::copies(&self.info.volumes, then, visibility),
        };
        let afterwards = if state == State::Paused { Afterwards::Stopped } else { Afterwards::Running };
        let live = self.live().ok_or(Refused::Hibernated)?;
        if kept == Kept::Disk {
            self.write_out_disk(&live).await?;
        }
        let id = self.intend()?;
        live.link.hold(true);
        let connections = self.network.flows();
        let info = &self.info;
        let behind = mark.as_ref().filter(|mark| ![Cause::Request, Cause::Rewind].contains(&mark.cause));
        let behind = behind.map(|_| self.saves.waiting.clone());
        let lasting = visibility == Visibility::Listed;
        let (snapshots, machine) = (&self.parts.snapshots, &live.machine);
        let save = Save { snapshots, machine, info, id, name, visibility, afterwards, kept, volumes, behind, lasting };
        let saving = save.freeze().await;
        live.link.hold(state != State::Running);
        let mut saving = saving?;
        saving.had(connections, self.network.flows());
        let mut info = self.info.clone();
        let checkpoint = mark.map(|mark| info.timeline.begin(mark, saving.id().clone()));
        // The disk stands on the new layer already, whatever becomes of the rest. The row announced it.
        info.standing = saving.standing.clone();
        self.note(info);
        Ok((saving, checkpoint))
    }

    /// Records the id of the next save before it begins, so that an engine that takes over in the middle of it can tell
    /// what the disk stands on.
    pub(super) fn intend(&mut self) -> Result<SnapshotId, SnapshotError> {
        mend::finish_moving(&self.parts.snapshots, &self.dir, &self.info.standing)?;
        let id = SnapshotId::fresh();
        let moving = Moving { id: id.clone(), from: self.info.standing.top().to_owned() };
        let standing = Standing { moving: Some(moving), ..self.info.standing.clone() };
        let info = SandboxInfo { standing, ..self.info.clone() };
        self.parts.store.update_sandbox(&info)?;
        self.info = info;
        Ok(id)
    }

    /// Copies a volume while the machine stands still: then everything that the guest has flushed is in the file.
    pub(super) async fn copy_volume(&mut self, from: &Path, to: &Path) -> Result<(), VolumeError> {
        let copy = || volume::copy_file(from, to);
        let state = self.phase.borrow().state();
        let Some(live) = self.live().filter(|_| state == State::Running) else { return copy().await };
        self.write_out(&live).await;
        live.link.hold(true);
        live.machine.stop().await?;
        let copied = copy().await;
        let went_on = live.machine.cont().await;
        live.link.hold(false);
        went_on?;
        copied
    }

    /// Has the guest write its caches to its disk, from which another one is to boot.
    pub(super) async fn write_out_disk(&self, live: &Live) -> Result<(), SnapshotError> {
        // Before anything changes: without the kernel, nothing can boot.
        self.parts.snapshots.image(&self.info)?;
        let sync = sandling_protocol::Request::Sync;
        live.link.call_within(WRITTEN_WITHIN, sync).await.map(drop).map_err(SnapshotError::NotWrittenOut)
    }

    /// Has the guest write its caches to its volumes, if it can.
    pub(super) async fn write_out(&self, live: &Live) {
        let sync = sandling_protocol::Request::Sync;
        if !self.info.volumes.is_empty()
            && let Err(error) = live.link.call_within(WRITTEN_WITHIN, sync).await
        {
            tracing::warn!(sandbox = %self.info.id, error = &error as &dyn std::error::Error, "the guest did not write out its volumes");
        }
    }
}
