//! Hibernating: the machine is saved and ended, and holds no memory until the sandbox is woken.
//!
//! If only its disk is kept, the guest first writes out its caches, and the sandbox boots from the disk when it is woken.
//!
//! The save is the last thing that the machine does, and the row names it before the machine ends. So the sandbox can
//! only be woken from there.

use std::sync::Arc;

use super::start::SandboxTask;
use crate::machine::{Live, end_and_remove};
use crate::model::{Kept, SandboxInfo, Standing, State};
use crate::sandbox::{ChangeError, Phase};

impl SandboxTask {
    pub(super) async fn hibernate(&mut self, live: &Arc<Live>, kept: Kept) -> Result<(), ChangeError> {
        let paused = self.info.state == State::Paused;
        match kept {
            Kept::Disk => self.write_out_disk(live).await?,
            Kept::Everything if !paused => self.write_out(live).await,
            Kept::Everything => {}
        }
        // The row says so before the machine ends, so that the next engine finds either the machine or the save.
        let slept = match self.save_for_good(live, kept).await {
            Ok(standing) => {
                self.commit(SandboxInfo { state: State::Hibernated, standing, ..self.info.clone() }).map_err(Into::into)
            }
            Err(error) => Err(error),
        };
        if let Err(error) = slept {
            if !paused {
                // If the machine does not resume either, the task notices and ends the sandbox.
                let _ = self.go_on(live).await;
            }
            return Err(error);
        }
        self.record("hibernated", serde_json::json!({ "memory": kept == Kept::Everything }));
        self.phase.send_replace(Phase::Hibernated);
        self.unplug();
        end_and_remove(&live.machine, &self.dir).await;
        Ok(())
    }

    async fn save_for_good(&mut self, live: &Live, kept: Kept) -> Result<Standing, ChangeError> {
        let id = self.intend()?;
        live.link.hold(true);
        let (hibernation, connections) = (self.hibernation.clone(), self.network.flows());
        let (standing, writing) = hibernation.freeze(live, &self.info, id, connections, kept).await?;
        // As in a snapshot: the disk stands on the new layer, whatever becomes of the rest.
        self.note(SandboxInfo { standing, ..self.info.clone() });
        Ok(writing.await?)
    }
}
