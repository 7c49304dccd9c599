//! How much of its quota a workspace uses.

use super::create::Sandboxes;
use crate::admission::Resources;
use crate::workspaces::WorkspaceName;

impl Sandboxes {
    /// What the sandboxes, volumes and snapshots of a workspace take.
    pub fn usage(&self, workspace: &WorkspaceName) -> Resources {
        let workspace = workspace.as_str();
        let own = self.engine.list_of(workspace).into_iter();
        let sandboxes: Resources =
            own.map(|info| sandboxes_of_size(1, info.vcpus, info.memory_mib, info.disk_mib)).sum();
        let disk_mib = self.engine.volumes().size_mib(workspace) + self.engine.snapshots().stored_mib(workspace);
        sandboxes + Resources { disk_mib, ..Resources::default() }
    }
}

/// What `count` sandboxes of one size take.
pub(super) fn sandboxes_of_size(count: u32, vcpus: u32, memory_mib: u32, disk_mib: u32) -> Resources {
    let all = |each: u32| u64::from(each) * u64::from(count);
    Resources { sandboxes: count.into(), vcpus: all(vcpus), memory_mib: all(memory_mib), disk_mib: all(disk_mib) }
}
