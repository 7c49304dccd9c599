//! Reserving resources beside what a workspace uses.

use sandling_engine::Sandbox;

use super::create::Sandboxes;
use crate::admission::{AdmitError, Reservation, Resource, Resources};
use crate::workspaces::WorkspaceName;

impl Sandboxes {
    pub(super) async fn reserve(
        &self,
        workspace: &WorkspaceName,
        requested: &Resources,
    ) -> Result<Reservation, AdmitError> {
        let mut reservation = self.admission.admit(workspace, requested, || self.usage(workspace))?;
        self.admission.agree(&mut reservation, || self.usage(workspace)).await?;
        Ok(reservation)
    }

    /// Reserves something. If the quota refuses disk space, templates of images and bakes that nothing needs make room, the
    /// one that was not used for longest first.
    pub(crate) async fn with_room<F: Future<Output = Result<Reservation, AdmitError>>>(
        &self,
        workspace: &WorkspaceName,
        reserve: impl Fn() -> F,
    ) -> Result<Reservation, AdmitError> {
        let lacks_disk = |reserved: &Result<_, AdmitError>| matches!(reserved, Err(AdmitError::Refused(refused)) if refused.what == Resource::DiskMib);
        let mut reserved = reserve().await;
        if lacks_disk(&reserved) {
            for item in self.engine.evictable(workspace.as_str())? {
                if self.engine.evict(workspace.as_str(), &item).await? == 0 {
                    continue;
                }
                reserved = reserve().await;
                if !lacks_disk(&reserved) {
                    break;
                }
            }
        }
        reserved
    }

    /// Reserves disk space.
    pub async fn reserve_disk(&self, workspace: &WorkspaceName, disk_mib: u64) -> Result<Reservation, AdmitError> {
        self.reserve(workspace, &Resources { disk_mib, ..Resources::default() }).await
    }

    /// Reserves the most that a snapshot of this sandbox can take.
    pub async fn reserve_snapshot(
        &self,
        workspace: &WorkspaceName,
        sandbox: &Sandbox,
    ) -> Result<Reservation, AdmitError> {
        let info = sandbox.info();
        self.reserve_disk(workspace, u64::from(info.memory_mib) + u64::from(info.disk_mib)).await
    }
}
