//! Sandboxes that another node may have taken over. Only the caller knows whether one has.

use std::collections::BTreeSet;
use std::sync::{Arc, MutexGuard, PoisonError};

use sandling_vmm::machine::{MachineDir, is_alive};

use super::instance::Engine;
use super::moving::MoveError;
use super::point::row_at;
use super::recover::settle;
use crate::machine::remove_leftover;
use crate::model::{FailedOver, SandboxId, SandboxInfo, SnapshotId, State};
use crate::network::Fence;
use crate::sandbox::{Phase, Sandbox};
use crate::store::StoreError;

impl Engine {
    /// Says whether a sandbox with failover may send now. Frames of its guest wait until it may.
    pub fn set_network_fence(&self, fence: Fence) {
        self.parts.networks.set_fence(fence);
    }

    pub(super) fn unconfirmed(&self) -> MutexGuard<'_, BTreeSet<SandboxId>> {
        self.unconfirmed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sandboxes here with failover, but for those on their way to or from another home.
    pub fn with_failover(&self) -> Vec<Arc<Sandbox>> {
        let mut all = self.registry.living();
        all.retain(|sandbox| sandbox.has_failover() && !self.is_on_its_way(sandbox.id()));
        all
    }

    /// Whether a move of a sandbox has begun and not ended here.
    pub fn is_on_its_way(&self, id: &SandboxId) -> bool {
        self.parts.snapshots.transits.get(id).is_some()
    }

    /// Whether there is anything here of a sandbox that has not ended.
    pub fn knows(&self, id: &SandboxId) -> bool {
        self.get(id).is_some() || self.is_on_its_way(id) || self.unreadable().contains_key(id)
    }

    /// The sandboxes of a dead engine that wait for [`confirm`](Self::confirm) or [`throw_away`](Self::throw_away).
    pub fn to_confirm(&self) -> Vec<SandboxId> {
        self.unconfirmed().iter().cloned().collect()
    }

    /// A sandbox of a dead engine is still this node's: it is taken over. If its machine died, too, it goes back to the point.
    pub fn confirm(
        self: &Arc<Self>,
        id: &SandboxId,
        point: Option<(&SnapshotId, FailedOver)>,
    ) -> Result<(), StoreError> {
        if !self.unconfirmed().contains(id) || self.is_closing() {
            return Ok(());
        }
        if let Some(info) = self.parts.store.living_sandbox(id.as_str())? {
            let info = match point {
                Some((point, last)) if info.state != State::Hibernated && !is_alive(&self.machine_dir(id)) => {
                    self.back_at(info, point, last)?
                }
                _ => info,
            };
            if let Some(sandbox) = self.host.start(Phase::Orphaned, info) {
                tokio::spawn(settle(self.clone(), sandbox));
            }
        }
        self.unconfirmed().remove(id);
        Ok(())
    }

    fn back_at(&self, info: SandboxInfo, point: &SnapshotId, last: FailedOver) -> Result<SandboxInfo, StoreError> {
        let Some((snapshot, _)) = self.parts.store.snapshot(point)? else { return Ok(info) };
        let detail = serde_json::json!({ "from": last.from, "point_at": last.to });
        let info = row_at(info, &snapshot, Some(last));
        self.parts.store.update_sandbox_lastingly(&info)?;
        self.parts.events.note(&info.id, &info.workspace, "failed_over", detail);
        Ok(info)
    }

    /// Another node has taken a sandbox over. Its machine ends, and nothing of it stays here.
    pub async fn throw_away(&self, id: &SandboxId, to: &str) -> Result<(), MoveError> {
        let row = self.parts.store.living_sandbox(id.as_str())?;
        if self.unconfirmed().contains(id) {
            remove_leftover(self.machine_dir(id).path()).await;
        } else if let Some(sandbox) = self.get(id) {
            sandbox.abandon().await;
        }
        self.forget(id, row, "failed_over", serde_json::json!({ "to": to })).await?;
        self.unconfirmed().remove(id);
        Ok(())
    }

    fn machine_dir(&self, id: &SandboxId) -> MachineDir {
        MachineDir::new(self.config.home.sandboxes().join(id.as_str()))
    }
}
