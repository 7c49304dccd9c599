//! Ending a sandbox: first the machine and its directory, then the row, and only then is the end announced.

use super::start::SandboxTask;
use crate::machine::{Live, end_and_remove, remove_leftover};
use crate::model::{EndReason, Standing, State};
use crate::sandbox::{ChangeError, Phase};

impl SandboxTask {
    pub(super) async fn end(&mut self, reason: EndReason) -> Result<(), ChangeError> {
        let phase = self.phase.borrow().clone();
        let registry = self.registry.upgrade();
        if phase.state() == State::Hibernated && registry.is_some() {
            // The row is all that is left. If it cannot be ended, the sandbox stays: the next engine would find it again.
            self.parts.store.end_sandbox(self.info.id.as_str(), &reason.to_string())?;
        }
        self.network.detach();
        if let Ok(live) = phase.live() {
            // The copy of the machine, from which they are read, ends with it.
            self.parts.snapshots.written_of(&self.info.id).await;
            self.unmount_volumes(live, &reason).await;
            end_and_remove(&live.machine, &self.dir).await;
        } else if phase.state() == State::Orphaned {
            remove_leftover(&self.dir).await;
        }
        self.parts.networks.close(&self.info.id);
        // An engine that was dropped without being closed leaves its rows to the next engine.
        if let Some(registry) = registry {
            if let Err(error) = self.parts.store.end_sandbox(self.info.id.as_str(), &reason.to_string()) {
                tracing::error!(sandbox = %self.info.id, error = &error as &dyn std::error::Error, "could not record the end of the sandbox");
            }
            registry.unregister(&self.info.id);
            self.release().await;
            self.record("ended", serde_json::json!({ "why": reason.to_string() }));
        }
        self.phase.send_replace(Phase::Ended(reason));
        Ok(())
    }

    /// Removes what only this sandbox needed.
    async fn release(&self) {
        if !self.info.volumes.is_empty()
            && let Err(error) = self.parts.volumes.drop_private(&self.info.id)
        {
            tracing::warn!(sandbox = %self.info.id, error = &error as &dyn std::error::Error, "could not remove the sandbox's private volumes");
        }
        if self.info.standing != Standing::default()
            && let Err(error) = self.parts.snapshots.sweep_with(&self.info.standing.disk).await
        {
            tracing::warn!(sandbox = %self.info.id, error = &error as &dyn std::error::Error, "could not sweep the snapshots that the sandbox stood on");
        }
    }

    async fn unmount_volumes(&self, live: &Live, reason: &EndReason) {
        if self.info.volumes.is_empty() || matches!(reason, EndReason::GuestDied(_)) {
            return;
        }
        if self.info.state == State::Paused {
            // A guest that does not resume cannot unmount either; then `unmount` logs that.
            let _ = live.machine.cont().await;
            live.link.hold(false);
        }
        self.parts.volumes.unmount(live, &self.info).await;
    }
}
