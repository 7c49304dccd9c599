//! Reserving resources beside what a workspace uses.

use sandling_engine::Sandbox;

use super::create::Sandboxes;
use crate::admission::{AdmitError, Reservation, Resources};
use crate::workspaces::WorkspaceName;

impl Sandboxes {
    pub(super) fn reserve(&self, workspace: &WorkspaceName, requested: &Resources) -> Result<Reservation, AdmitError> {
        self.admission.admit(workspace, requested, || self.usage(workspace))
    }

    /// Reserves disk space.
    pub fn reserve_disk(&self, workspace: &WorkspaceName, disk_mib: u64) -> Result<Reservation, AdmitError> {
        self.reserve(workspace, &Resources { disk_mib, ..Resources::default() })
    }

    /// Reserves the most that a snapshot of this sandbox can take.
    pub fn reserve_snapshot(&self, workspace: &WorkspaceName, sandbox: &Sandbox) -> Result<Reservation, AdmitError> {
        let info = sandbox.info();
        self.reserve_disk(workspace, u64::from(info.memory_mib) + u64::from(info.disk_mib))
    }
}
