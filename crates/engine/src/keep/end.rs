//! Its end: the machine, its directory, its row, and only then is it said.

use super::Keeper;
use crate::lifecycle::State;
use crate::sandbox::{EndReason, Live, Phase};
use crate::snapshot::Standing;
use crate::store::StoreError;
use crate::{made, volume};

impl Keeper {
    /// Of one that hibernates nothing but its row is left, so that is what has to end: it would be there again at the
    /// next start.
    pub(super) fn give_up_image(&self, reason: &EndReason) -> Result<(), StoreError> {
        match self.engine.upgrade().filter(|_| self.live.is_none()) {
            Some(engine) => engine.store.end_sandbox(self.info.id.as_str(), &reason.to_string()),
            None => Ok(()),
        }
    }

    /// Ends the machine, removes its directory, writes it down, and only then says so.
    pub(super) async fn finish(&mut self, reason: EndReason) {
        self.network.detach();
        if let Some(live) = self.live.take() {
            self.let_go_of_volumes(&live, &reason).await;
            made::end_and_remove(&live.machine, &self.dir).await;
        }
        if let Some(engine) = self.engine.upgrade() {
            if let Err(error) = engine.store.end_sandbox(self.info.id.as_str(), &reason.to_string()) {
                tracing::error!(sandbox = %self.info.id, error = &error as &dyn std::error::Error, "its end was not written down");
            }
            engine.unregister(&self.info.id);
            if !self.info.volumes.is_empty()
                && let Err(error) = engine.drop_private_volumes(&self.info.id)
            {
                tracing::warn!(sandbox = %self.info.id, error = &error as &dyn std::error::Error, "its own copies of volumes were not removed");
            }
            if self.info.standing != Standing::default()
                && let Err(error) = engine.sweep_with(&self.info.standing.disk).await
            {
                tracing::warn!(error = &error as &dyn std::error::Error, "what it stood on was not swept");
            }
        }
        self.record("ended", serde_json::json!({ "why": reason.to_string() }));
        self.phase.send_replace(Phase::Ended(reason));
    }

    pub(super) async fn let_go_of_volumes(&self, live: &Live, reason: &EndReason) {
        let Some(engine) = self.engine.upgrade() else { return };
        if self.info.volumes.is_empty() || matches!(reason, EndReason::GuestDied(_)) {
            return;
        }
        if self.phase.borrow().state() == State::Paused {
            // If it does not go on, it cannot unmount either, and that is said then.
            let _ = live.machine.cont().await;
            live.link.hold(false);
        }
        volume::let_go(&engine, live, &self.info).await;
    }
}
