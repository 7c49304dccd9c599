//! The gateway of a sandbox, and changes of its network.

use std::sync::Arc;
use std::time::Duration;

use sandling_network::{Authority, Flow};

use super::disk_full;
use super::start::SandboxTask;
use crate::machine::Live;
use crate::model::{NetworkSettings, SandboxInfo};
use crate::network::{Granted, NetworkChange, NetworkError};

/// A guest cannot have had more connections; a snapshot from elsewhere may claim any number.
const MOST_CUT: usize = 4096;
/// Until then a machine competes for CPUs on its own, which only matters to machines that stay busy.
const JOIN_TENANT_AFTER: Duration = Duration::from_secs(1);

impl SandboxTask {
    /// Watches the disk of another machine, and plugs it in.
    pub(super) async fn connect(&mut self, live: &Arc<Live>) {
        self.stalls = disk_full::watch(live, self.phase.subscribe(), &self.parts.disk, &self.info.id);
        self.deadline = None;
        self.plug_in(live).await;
    }

    /// Gives the machine the CPU share of its workspace, and starts a gateway at the other end of the machine's network card. If that fails, the sandbox has no network.
    pub(super) async fn plug_in(&self, live: &Live) {
        let joining = live.machine.join_tenant(&self.info.workspace, JOIN_TENANT_AFTER);
        let sandbox = self.info.id.clone();
        tokio::spawn(async move {
            if let Err(error) = joining.await {
                tracing::warn!(%sandbox, error = &error as &dyn std::error::Error, "a machine did not join the control group of its workspace");
            }
        });
        if let Err(error) = self.network.attach(&live.machine, self.inherited()).await {
            tracing::error!(sandbox = %self.info.id, error = &error as &dyn std::error::Error, "could not start the sandbox's gateway; it has no network");
            self.record("network_failed", serde_json::json!({ "why": error.to_string() }));
        }
    }

    /// Ends the gateway and saves its state for the next one.
    pub(super) fn unplug(&mut self) {
        self.network.save();
        self.network.detach();
        self.stop_telling();
    }

    /// Connections that the guest had when it was saved, and that ended there.
    fn inherited(&self) -> Vec<Flow> {
        let saved = self.info.standing.restored.as_ref();
        let saved = saved.and_then(|id| self.parts.snapshots.get(id).ok().flatten());
        let connections = saved.map(|snapshot| snapshot.connections).unwrap_or_default();
        connections.into_iter().take(MOST_CUT).collect()
    }

    /// Applies at once everything that does not need the guest, so that the guest cannot delay what binds it. Returns
    /// the secrets that the guest has to be told about first.
    pub(super) fn change_network(&mut self, mut change: NetworkChange) -> Result<Granted, NetworkError> {
        let networks = self.parts.networks.clone();
        networks.check_change(&self.info, &change)?;
        let granted = networks.grant(&self.info.workspace, &self.info.network, &change.secrets)?;
        let named = change.secrets.clone();
        let now = self.network.effective().policy;
        let header_rules = change.header_rules.take();
        let mut settings = self.info.network.changed(change, &now, networks.limits())?;
        if let Some(rules) = header_rules {
            settings.header_rules = networks.seal_header_rules(&self.info.workspace, &rules)?;
        }
        self.adopt(settings, None)?;
        if let Some(named) = named {
            self.notices.give_only(&named);
        }
        let mut detail = self.network.effective().detail();
        detail["group"] = serde_json::json!(self.info.network.group);
        self.record("network_changed", detail);
        Ok(granted)
    }

    /// Recorded first: an acknowledged change survives a crash.
    pub(super) fn adopt(
        &mut self,
        settings: NetworkSettings,
        authority: Option<Arc<Authority>>,
    ) -> Result<(), NetworkError> {
        self.parts.store.update_sandbox(&SandboxInfo { network: settings.clone(), ..self.info.clone() })?;
        self.info.network = settings.clone();
        self.network.apply(settings, authority)
    }
}
