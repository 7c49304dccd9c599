//! Waking a sandbox where it hibernated, under the same id.

use std::sync::Arc;

use super::disk_full;
use super::start::{SandboxTask, note};
use crate::machine::{Live, end_and_remove, identify};
use crate::model::{SandboxInfo, State};
use crate::sandbox::{ChangeError, CreateError, Phase};

impl SandboxTask {
    /// The row says that the sandbox runs before it can be used and before it can reach anything. Otherwise it might do
    /// the same things again after a crash, from where it slept.
    pub(super) async fn wake(&mut self) -> Result<(), ChangeError> {
        let live = Arc::new(self.restore().await?);
        let mut info = SandboxInfo { state: State::Running, ..self.info.clone() };
        if info.lifetime.sleep.is_free {
            info.lifetime.from = jiff::Timestamp::now();
        }
        if let Err(error) = self.commit(info) {
            end_and_remove(&live.machine, &self.dir).await;
            return Err(error.into());
        }
        self.live = Some(live.clone());
        // The caller is about to use it, so its idle time starts now.
        drop(self.activity.begin());
        self.plug_in().await;
        let note = note(&self.parts.events, &self.info);
        disk_full::watch(&live, self.phase.subscribe(), self.stalled.clone(), note);
        self.enter(Phase::Running(live), "woken");
        self.tell_authority();
        if let Some(sandbox) = self.handle.upgrade() {
            sandbox.fold_behind(&self.parts.snapshots);
        }
        Ok(())
    }

    async fn restore(&self) -> Result<Live, CreateError> {
        let info = &self.info;
        let saved = info.standing.restored.as_ref().ok_or(CreateError::NoSnapshot)?;
        let snapshot = self.parts.snapshots.get(saved)?.ok_or(CreateError::NoSnapshot)?;
        let mut source = self.parts.snapshots.source(&snapshot)?;
        source.plugs = self.parts.volumes.plugs(info);
        source.volume_mib = info.volumes.iter().map(|volume| volume.size_mib).max().unwrap_or_default();
        if source.disk_name != info.standing.top() {
            // An older version put it to sleep, under another name of its disk.
            source.disk_name = info.standing.top().to_owned();
            source.cached = None;
        }
        let made = self.parts.machines.factory.restore_as(info.id.clone(), &source).await?;
        match identify(made.link(), &made.id, None, info.pids).await {
            Ok(_) => Ok(made.into_live()),
            Err(error) => {
                // Not by dropping it: the next wake makes a directory of the same name.
                made.discard().await;
                Err(error.into())
            }
        }
    }
}
