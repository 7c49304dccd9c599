//! The engine itself: its parts, and the sandboxes that live in it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use sandling_vmm::accelerator::Probe;
use tokio::task::JoinSet;

use crate::config::EngineConfig;
use crate::events::Events;
use crate::machine::Machines;
use crate::model::{EndReason, SandboxId, SandboxInfo};
use crate::network::Networks;
use crate::owner::Owner;
use crate::parts::Parts;
use crate::registry::Registry;
use crate::sandbox::Sandbox;
use crate::snapshot::Snapshots;
use crate::store::StoreError;
use crate::task::Host;
use crate::volume::Volumes;

/// Everything in one home directory. Several engines, in several processes, may share one.
pub struct Engine {
    pub(super) config: EngineConfig,
    pub(super) probe: Probe,
    pub(super) owner: Owner,
    pub(crate) parts: Parts,
    pub(super) registry: Arc<Registry>,
    pub(super) host: Host,
    /// Sandboxes of dead engines that cannot be read, as they were when this engine started.
    pub(super) unreadable: Mutex<BTreeMap<SandboxId, SandboxInfo>>,
    /// Sandboxes with failover that a dead engine left, before it is known whether another node has taken them over.
    pub(super) unconfirmed: Mutex<BTreeSet<SandboxId>>,
}

impl Engine {
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// The accelerator that this host offers, and why.
    pub fn probe(&self) -> &Probe {
        &self.probe
    }

    pub fn events(&self) -> &Events {
        &self.parts.events
    }

    pub fn machines(&self) -> &Machines {
        &self.parts.machines
    }

    pub fn networks(&self) -> &Networks {
        &self.parts.networks
    }

    pub fn snapshots(&self) -> &Arc<Snapshots> {
        &self.parts.snapshots
    }

    pub fn volumes(&self) -> &Volumes {
        &self.parts.volumes
    }

    pub fn get(&self, id: &SandboxId) -> Option<Arc<Sandbox>> {
        self.registry.get(id)
    }

    /// A sandbox of this workspace. Sandboxes of other workspaces are not found.
    pub async fn find(&self, workspace: &str, id: &SandboxId) -> Option<Arc<Sandbox>> {
        self.get(id)?.settled().await;
        self.get(id).filter(|sandbox| sandbox.info.workspace == workspace)
    }

    /// The id of a workspace's sandbox, given its id or its name.
    pub fn resolve(&self, workspace: &str, id_or_name: &str) -> Option<SandboxId> {
        SandboxId::parse(id_or_name)
            .or_else(|| self.registry.named(workspace, id_or_name).map(|sandbox| sandbox.id().clone()))
    }

    /// The sandboxes of this engine, oldest first.
    pub fn list(&self) -> Vec<SandboxInfo> {
        let mut infos: Vec<_> = self.registry.living().iter().map(|sandbox| sandbox.info()).collect();
        infos.sort_by_key(|info| info.created_at);
        infos
    }

    /// The sandboxes of one workspace, oldest first. Before the engine has [`settled`](Self::settled), some may be
    /// [`State::Orphaned`](crate::State::Orphaned).
    pub fn list_of(&self, workspace: &str) -> Vec<SandboxInfo> {
        let mut infos = self.list();
        infos.retain(|info| info.workspace == workspace);
        infos.extend(self.unreadable_of(workspace));
        infos.sort_by_key(|info| info.created_at);
        infos
    }

    /// The sandbox that an ended sandbox was forked from, as long as its row is kept.
    pub fn parent_of_ended(&self, id: &SandboxId) -> Result<Option<SandboxId>, StoreError> {
        Ok(self.parts.store.parent_of(id.as_str())?.and_then(|parent| SandboxId::parse(&parent)))
    }

    /// An ended sandbox and why it ended, as long as its row is kept.
    pub fn ended(&self, id: &SandboxId) -> Result<Option<(SandboxInfo, String)>, StoreError> {
        self.parts.store.ended_sandbox(id.as_str())
    }

    /// The sandbox of a workspace that had this name or an id with this prefix and ended last, and why, as long as its row
    /// is kept.
    pub fn last_ended(&self, workspace: &str, named: &str) -> Result<Option<(SandboxInfo, String)>, StoreError> {
        self.parts.store.last_ended_sandbox(workspace, named)
    }

    pub fn is_closing(&self) -> bool {
        self.registry.is_closing()
    }

    /// Waits until it is known of every sandbox that a dead engine left whether this engine has taken it over.
    pub async fn settled(&self) {
        for sandbox in self.registry.living() {
            sandbox.settled().await;
        }
    }

    /// Ends every sandbox and standby. Nothing can be created afterwards.
    pub async fn close(&self) {
        self.settled().await;
        let mut ending = JoinSet::new();
        for sandbox in self.registry.close() {
            ending.spawn(async move {
                // If it does not end, its task has logged why.
                let _ = sandbox.end(EndReason::EngineClosed).await;
            });
        }
        tokio::join!(ending.join_all(), self.parts.machines.close());
    }

    /// Lets go of the sandboxes without ending them. Persistent sandboxes hibernate. The next engine that takes over
    /// finds the others as they are, and each ends by itself when its time is over. Standbys are ended.
    pub async fn detach(&self) {
        self.settled().await;
        let sandboxes = self.registry.close();
        let letting_go = async {
            for sandbox in sandboxes {
                // One that stands still refuses to hibernate.
                if sandbox.lifetime.borrow().persistent
                    && let Err(error) = sandbox.hibernate().await
                {
                    tracing::warn!(sandbox = %sandbox.id(), error = &error as &dyn std::error::Error, "could not hibernate a persistent sandbox; it is left running");
                }
                sandbox.let_go().await;
            }
        };
        tokio::join!(letting_go, self.parts.machines.close());
        // Children of a fork need pages that only this engine can write.
        self.parts.snapshots.all_written().await;
    }
}
