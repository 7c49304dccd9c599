//! The machine's card, and what may be reached through it.

use super::Keeper;
use crate::network::{NetworkChange, NetworkError, NetworkSettings};
use crate::sandbox::SandboxInfo;

impl Keeper {
    /// Puts a gateway at the other end of the machine's card. Frames wait until then; without one they wait for ever,
    /// and the sandbox has no network.
    pub(super) async fn plug_in(&self) {
        let (Some(engine), Some(live)) = (self.engine.upgrade(), &self.live) else { return };
        if let Err(error) = self.network.attach(&engine, &self.info, &live.machine).await {
            tracing::error!(sandbox = %self.info.id, error = &error as &dyn std::error::Error, "it has no network");
            self.record("network_failed", serde_json::json!({ "why": error.to_string() }));
        }
    }

    pub(super) fn set_network(&mut self, change: NetworkChange) -> Result<NetworkSettings, NetworkError> {
        let engine = self.engine.upgrade().ok_or(NetworkError::Ended)?;
        let settings = self.info.network.changed(change)?;
        let detail = serde_json::json!({ "policy": settings.policy });
        // Written down first: what was acknowledged holds after a crash, too.
        engine.store.update_sandbox(&SandboxInfo { network: settings.clone(), ..self.info.clone() })?;
        self.info.network = settings.clone();
        self.network.apply(&engine, &self.info.workspace, settings.clone());
        self.record("network_changed", detail);
        Ok(settings)
    }
}
