//! Saving a machine that goes on, and copying its volumes.

use std::path::Path;
use std::time::Duration;

use sandling_vmm::machine::Afterwards;

use super::Keeper;
use crate::engine::Engine;
use crate::lifecycle::{self, Refused, Request, State};
use crate::sandbox::{Live, SandboxInfo};
use crate::snapshot::{Moving, Save, Saving, SnapshotError, SnapshotId, Standing, mend};
use crate::store::Listed;
use crate::timeline::{Checkpoint, Mark};
use crate::volume::{self, OnVolumes, VolumeError};

/// What the guest has not written out by then, it writes out when it is woken.
const WRITTEN_WITHIN: Duration = Duration::from_secs(15);

impl Keeper {
    /// Stops the machine for as long as it takes to copy it. A machine that was paused stays so.
    pub(super) async fn freeze(
        &mut self,
        name: Option<String>,
        listed: Listed,
        mark: Option<Mark>,
        volumes: Option<OnVolumes>,
    ) -> Result<(Saving, Option<Checkpoint>), SnapshotError> {
        let state = self.phase.borrow().state();
        lifecycle::decide(state, Request::Save)?;
        let volumes = match volumes {
            None if self.info.volumes.is_empty() => Vec::new(),
            None if mark.is_some() => return Err(VolumeError::NoCheckpoints.into()),
            None => return Err(VolumeError::NotSaid.into()),
            Some(then) => volume::copies(&self.info.volumes, then, listed),
        };
        let engine = self.engine.upgrade().ok_or(SnapshotError::CutOff)?;
        let afterwards = if state == State::Paused { Afterwards::Stopped } else { Afterwards::Running };
        let live = self.live.clone().ok_or(Refused::Hibernated)?;
        let id = self.intend(&engine)?;
        live.link.hold(true);
        let connections = self.network.flows();
        let info = &self.info;
        // A checkpoint is made often and gone back to seldom.
        let process = mark.is_none();
        let lasting = listed == Listed::Yes;
        let machine = &live.machine;
        let save = Save { engine: &engine, machine, info, id, name, listed, afterwards, volumes, process, lasting };
        let saving = save.freeze().await;
        live.link.hold(state == State::Paused);
        let mut saving = saving?;
        saving.had(connections, self.network.flows());
        let mut info = self.info.clone();
        let checkpoint = mark.map(|mark| info.timeline.begin(mark, saving.id().clone()));
        // The disk stands on the new layer already, whatever becomes of the rest. Its row says that it was about to.
        info.standing = saving.standing.clone();
        self.is_so(info);
        Ok((saving, checkpoint))
    }

    /// Writes down what the next save is going to be called before it begins: whoever takes over in the middle of it
    /// can tell what the disk stands on.
    pub(super) fn intend(&mut self, engine: &Engine) -> Result<SnapshotId, SnapshotError> {
        mend::finish_moving(engine, &self.dir, &self.info.standing)?;
        let id = SnapshotId::fresh();
        let moving = Moving { id: id.clone(), from: self.info.standing.top().to_owned() };
        let standing = Standing { moving: Some(moving), ..self.info.standing.clone() };
        let info = SandboxInfo { standing, ..self.info.clone() };
        engine.store.update_sandbox(&info)?;
        self.info = info;
        Ok(id)
    }

    /// A machine that stands still has written out all that its guest has flushed.
    pub(super) async fn copy_volume(&mut self, from: &Path, to: &Path) -> Result<(), VolumeError> {
        let copy = || volume::copy_now(from.to_owned(), to.to_owned());
        let state = self.phase.borrow().state();
        let Some(live) = self.live.clone().filter(|_| state == State::Running) else { return copy().await };
        self.write_out(&live).await;
        live.link.hold(true);
        live.machine.stop().await?;
        let copied = copy().await;
        let went_on = live.machine.cont().await;
        live.link.hold(false);
        went_on?;
        copied
    }

    /// What the guest holds back is written to its volumes, if it can.
    pub(super) async fn write_out(&self, live: &Live) {
        let sync = sandling_protocol::Request::Sync;
        if !self.info.volumes.is_empty()
            && let Err(error) = live.link.call_within(WRITTEN_WITHIN, sync).await
        {
            tracing::warn!(sandbox = %self.info.id, error = &error as &dyn std::error::Error, "its volumes were not written out");
        }
    }
}
