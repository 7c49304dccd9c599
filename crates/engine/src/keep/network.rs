//! The machine's card, and what may be reached through it.

use std::sync::Arc;
use std::time::Duration;

use sandling_network::{Authority, Flow};
use tokio::time::timeout;

use super::Keeper;
use crate::engine::Engine;
use crate::lifecycle::State;
use crate::network::{Granted, NetworkChange, NetworkError, NetworkSettings};
use crate::sandbox::SandboxInfo;

/// A guest that takes longer to learn of a secret gets none: its task has other things to do.
const TOLD_WITHIN: Duration = Duration::from_secs(30);

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
    pub(super) fn unplug(&self) {
        if let Some(engine) = self.engine.upgrade() {
            self.network.keep(&engine, &self.info.id);
        }
        self.network.detach();
    }

    /// Connections that the guest had when it was saved, and that ended there.
    fn inherited(&self, engine: &Engine) -> Vec<Flow> {
        let saved = self.info.standing.restored.as_ref().and_then(|id| engine.store.snapshot(id).ok().flatten());
        let connections = saved.map(|(snapshot, _)| snapshot.connections).unwrap_or_default();
        connections.into_iter().take(MOST_CUT).collect()
    }

    pub(super) async fn set_network(&mut self, change: NetworkChange) -> Result<NetworkSettings, NetworkError> {
        let engine = self.engine.upgrade().ok_or(NetworkError::Ended)?;
        let workspace = self.info.workspace.clone();
        engine.check_change(&self.info, &change)?;
        let granted = engine.grant(&workspace, &self.info.network, &change.secrets)?;
        let mut settings = self.info.network.changed(change, &granted.secrets, &engine.outside.limits)?;
        let needs_authority = settings.opens_tls() && !settings.has_authority;
        let authority = self.teach(&engine, &granted, needs_authority).await?;
        settings.has_authority |= needs_authority;
        self.adopt(&engine, settings, authority)?;
        let mut detail = self.network.in_force().detail();
        detail["group"] = serde_json::json!(self.info.network.group);
        self.record("network_changed", detail);
        self.catch_up().await;
        Ok(self.info.network.clone())
    }

    /// Makes the guest trust an authority, if its TLS has to be opened because of what it follows or is bound by, and it
    /// had none. Until then, and if it does not work, such connections are refused.
    pub(super) async fn catch_up(&mut self) {
        let runs = self.phase.borrow().state() == State::Running;
        let Some(engine) = self.engine.upgrade().filter(|_| runs && self.network.lacks_authority()) else { return };
        let taught = self.teach(&engine, &Granted::default(), true).await.and_then(|authority| {
            let settings = NetworkSettings { has_authority: true, ..self.info.network.clone() };
            self.adopt(&engine, settings, authority)
        });
        if let Err(error) = taught {
            tracing::warn!(sandbox = %self.info.id, error = &error as &dyn std::error::Error, "its TLS cannot be opened and is refused");
            self.record("network_failed", serde_json::json!({ "why": error.to_string() }));
        }
    }

    /// Written down first: what was acknowledged holds after a crash, too.
    fn adopt(
        &mut self,
        engine: &Engine,
        settings: NetworkSettings,
        authority: Option<Arc<Authority>>,
    ) -> Result<(), NetworkError> {
        engine.store.update_sandbox(&SandboxInfo { network: settings.clone(), ..self.info.clone() })?;
        self.info.network = settings.clone();
        self.network.apply(engine, &self.info, settings, authority)
    }

    /// Tells the guest what it needs for secrets that are new to it, and whom to trust if it does not know yet.
    async fn teach(
        &self,
        engine: &Engine,
        granted: &Granted,
        needs_authority: bool,
    ) -> Result<Option<Arc<Authority>>, NetworkError> {
        if granted.secrets.is_empty() && !needs_authority {
            return Ok(None);
        }
        let live = self.live.as_ref().filter(|_| self.phase.borrow().state() == State::Running);
        let live = live.ok_or(NetworkError::NotRunning)?;
        let taught = granted.teach(engine, &self.info.id, &live.link, needs_authority);
        timeout(TOLD_WITHIN, taught).await.map_err(|_| NetworkError::NotRunning)?
    }
}
