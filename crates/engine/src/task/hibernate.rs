//! Hibernating: the machine is saved and ended, and holds no memory until the sandbox is woken.
//!
//! The save is the last thing that the machine does, and the row names it before the machine ends. So the sandbox can
//! only be woken from there.

use std::sync::Arc;

use sandling_vmm::machine::Afterwards;

use super::start::SandboxTask;
use crate::machine::{Live, end_and_remove};
use crate::model::{SandboxInfo, SnapshotId, State, Visibility};
use crate::sandbox::{ChangeError, Phase};
use crate::snapshot::{Save, Saving, SnapshotError};

impl SandboxTask {
    pub(super) async fn hibernate(&mut self, live: &Arc<Live>) -> Result<(), ChangeError> {
        let paused = self.phase.borrow().state() == State::Paused;
        if !paused {
            self.write_out(live).await;
        }
        let id = self.intend()?;
        live.link.hold(true);
        let connections = self.network.flows();
        let saved = match self.freeze_for_good(live, id).await {
            Ok(mut saving) => {
                saving.had(connections, Vec::new());
                // As in a snapshot: the disk stands on the new layer, whatever becomes of the rest.
                self.note(SandboxInfo { standing: saving.standing.clone(), ..self.info.clone() });
                saving.write().await
            }
            Err(error) => Err(error),
        };
        // Recorded before the machine ends, so that the next engine finds either the machine or the save.
        let slept = saved.map_err(ChangeError::from).and_then(|(snapshot, _)| {
            let standing = snapshot.standing();
            Ok(self.commit(SandboxInfo { state: State::Hibernated, standing, ..self.info.clone() })?)
        });
        if let Err(error) = slept {
            if !paused {
                // If the machine does not resume either, the task notices and ends the sandbox.
                let _ = self.go_on(live).await;
            }
            return Err(error);
        }
        self.live = None;
        self.deadline = None;
        self.enter(Phase::Hibernated, "hibernated");
        self.unplug();
        end_and_remove(&live.machine, &self.dir).await;
        Ok(())
    }

    /// Stops the machine, which does not resume, and copies it.
    async fn freeze_for_good(&self, live: &Live, id: SnapshotId) -> Result<Saving, SnapshotError> {
        let info = &self.info;
        let save = Save {
            snapshots: &self.parts.snapshots,
            machine: &live.machine,
            info,
            id,
            name: None,
            visibility: Visibility::Hidden,
            afterwards: Afterwards::Stopped,
            // The sandbox keeps its volumes, so they are not copied.
            volumes: Vec::new(),
            process: true,
            // From then on the save is all that is left of the sandbox.
            lasting: info.lifetime.persistent || info.lifetime.sleep.at_the_end,
        };
        save.freeze().await
    }
}
