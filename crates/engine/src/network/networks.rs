//! The networks of an engine's sandboxes, so that a changed default or secret reaches those that run.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use sandling_network::{Limits, Totals};

use super::config::{GatewayDefaults, NetworkConfig};
use super::groups::Groups;
use super::sandbox_network::SandboxNetwork;
use super::shared::{Fence, Shared};
use super::vault::Vault;
use crate::events::Events;
use crate::model::{EffectivePolicy, NetworkSettings, SandboxId, SandboxInfo};
use crate::store::{Store, StoreError};
use sandling_wire::Home;

pub struct Networks {
    pub(super) shared: Arc<Shared>,
    sandboxes: Mutex<HashMap<SandboxId, Weak<SandboxNetwork>>>,
}

impl Networks {
    pub(crate) fn new(store: Arc<Store>, events: Arc<Events>, home: &Home, config: &NetworkConfig) -> Self {
        let (vault, gateways) = (Vault::of(home), GatewayDefaults::new(config));
        let shared = Shared { store, events, vault, gateways, groups: Groups::default(), fence: OnceLock::new() };
        Self { shared: Arc::new(shared), sandboxes: Mutex::default() }
    }

    /// Gateways that start from now on ask this.
    pub(crate) fn set_fence(&self, fence: Fence) {
        // A server is in one fleet.
        let _ = self.shared.fence.set(fence);
    }

    /// The network of a sandbox. It reaches nothing until [`SandboxNetwork::renew`] or [`SandboxNetwork::attach`].
    pub(crate) fn open(&self, info: &SandboxInfo) -> Arc<SandboxNetwork> {
        let network = SandboxNetwork::new(&self.shared, info);
        let mut sandboxes = self.sandboxes();
        sandboxes.retain(|_, network| network.strong_count() > 0);
        sandboxes.insert(info.id.clone(), Arc::downgrade(&network));
        network
    }

    /// Forgets the network of a sandbox that has ended.
    pub(crate) fn close(&self, sandbox: &SandboxId) {
        self.sandboxes().remove(sandbox);
    }

    pub(super) fn of_workspace(&self, workspace: &str) -> Vec<Arc<SandboxNetwork>> {
        let mut all = self.all();
        all.retain(|network| network.workspace() == workspace);
        all
    }

    fn all(&self) -> Vec<Arc<SandboxNetwork>> {
        self.sandboxes().values().filter_map(Weak::upgrade).collect()
    }

    fn sandboxes(&self) -> MutexGuard<'_, HashMap<SandboxId, Weak<SandboxNetwork>>> {
        self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The policy and limits of a sandbox that has no settings of its own.
    pub fn usual(&self, workspace: &str, template: &str) -> Result<EffectivePolicy, StoreError> {
        self.shared.effective(workspace, template, &NetworkSettings::default())
    }

    /// The operator's limits, which bind every sandbox.
    pub(crate) fn limits(&self) -> &Limits {
        &self.shared.gateways.limits
    }

    /// What all gateways decided and carried, including those of sandboxes that have ended.
    pub fn totals(&self) -> &Totals {
        &self.shared.gateways.totals
    }

    /// The number of connections that are open at the moment.
    pub fn open_connections(&self) -> u64 {
        self.all().iter().map(|network| network.counts().connections_open).sum()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The networks of a new home, in a directory that is removed when it is dropped.
    pub(crate) fn home() -> (tempfile::TempDir, Networks) {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path().to_owned());
        let store = Arc::new(Store::open(&home.store()).unwrap());
        let networks = Networks::new(store.clone(), Arc::new(Events::new(store)), &home, &NetworkConfig::default());
        (dir, networks)
    }
}
