//! The machine's card, and what may be reached through it.

use std::sync::Arc;

use sandling_network::{Authority, Flow};

use super::Keeper;
use crate::engine::Engine;
use crate::network::{Granted, NetworkChange, NetworkError, NetworkSettings};
use crate::sandbox::SandboxInfo;

/// More than a guest can have had; a snapshot from elsewhere may say anything.
const MOST_CUT: usize = 4096;

impl Keeper {
    /// Puts a gateway at the other end of the machine's card. Frames wait until then; without one they wait for ever,
    /// and the sandbox has no network.
    pub(super) async fn plug_in(&self) {
        let (Some(engine), Some(live)) = (self.engine.upgrade(), &self.live) else { return };
        let cut = self.inherited(&engine);
        if let Err(error) = self.network.attach(&engine, &self.info, &live.machine, cut).await {
            tracing::error!(sandbox = %self.info.id, error = &error as &dyn std::error::Error, "it has no network");
            self.record("network_failed", serde_json::json!({ "why": error.to_string() }));
        }
    }

    /// Ends the gateway, and writes down what the next one needs.
    pub(super) fn unplug(&mut self) {
        if let Some(engine) = self.engine.upgrade() {
            self.network.keep(&engine, &self.info.id);
        }
        self.network.detach();
        self.stop_teaching();
    }

    /// Connections that the guest had when it was saved, and that ended there.
    fn inherited(&self, engine: &Engine) -> Vec<Flow> {
        let saved = self.info.standing.restored.as_ref().and_then(|id| engine.store.snapshot(id).ok().flatten());
        let connections = saved.map(|(snapshot, _)| snapshot.connections).unwrap_or_default();
        connections.into_iter().take(MOST_CUT).collect()
    }

    /// Changes it at once as far as that is ours to do: no guest can put off what binds it. Answers what it is given
    /// besides, when its guest has been told.
    pub(super) fn change_network(&mut self, change: NetworkChange) -> Result<Granted, NetworkError> {
        let engine = self.engine.upgrade().ok_or(NetworkError::Ended)?;
        engine.check_change(&self.info, &change)?;
        let granted = engine.grant(&self.info.workspace, &self.info.network, &change.secrets)?;
        let named = change.secrets.clone();
        let now = self.network.in_force().policy;
        let settings = self.info.network.changed(change, &now, &engine.outside.limits)?;
        self.adopt(&engine, settings, None)?;
        if let Some(named) = named {
            self.lessons.give_only(&named);
        }
        let mut detail = self.network.in_force().detail();
        detail["group"] = serde_json::json!(self.info.network.group);
        self.record("network_changed", detail);
        Ok(granted)
    }

    /// Written down first: what was acknowledged holds after a crash, too.
    pub(super) fn adopt(
        &mut self,
        engine: &Engine,
        settings: NetworkSettings,
        authority: Option<Arc<Authority>>,
    ) -> Result<(), NetworkError> {
        engine.store.update_sandbox(&SandboxInfo { network: settings.clone(), ..self.info.clone() })?;
        self.info.network = settings.clone();
        self.network.apply(engine, &self.info, settings, authority)
    }
}
