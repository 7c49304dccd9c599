//! How much of its quota a workspace uses.

use std::ops::Add;

use super::create::Sandboxes;
use crate::admission::Resources;
use crate::workspaces::WorkspaceName;
use crate::{stored_layers, stored_uploads};

impl Sandboxes {
    /// What all homes use that share the workspace's quota.
    pub async fn usage_of_all(&self, workspace: &WorkspaceName) -> Resources {
        self.usage(workspace) + self.admission.used_elsewhere(workspace).await
    }

    /// What the sandboxes, volumes, snapshots, uploads, templates and layers of images of a workspace take.
    pub fn usage(&self, workspace: &WorkspaceName) -> Resources {
        let uploads = stored_uploads::stored(&self.engine.config().home.uploads(), workspace);
        let layers = stored_layers::stored_bytes(&self.engine.config().home.layers(), workspace);
        let workspace = workspace.as_str();
        let disk_mib = self.engine.volumes().size_mib(workspace)
            + self.engine.snapshots().stored_mib(workspace)
            + self.engine.machines().stored_mib(workspace)
            + (uploads.bytes + layers).div_ceil(1 << 20);
        let stored = Resources { disk_mib, ..Resources::default() };
        let own = self.engine.list_of(workspace).into_iter();
        own.map(|info| sandboxes_of_size(1, info.vcpus, info.memory_mib, info.disk_mib)).fold(stored, Add::add)
    }
}

/// What `count` sandboxes of one size take.
pub(super) fn sandboxes_of_size(count: u32, vcpus: u32, memory_mib: u32, disk_mib: u32) -> Resources {
    let all = |each: u32| u64::from(each) * u64::from(count);
    Resources { sandboxes: count.into(), vcpus: all(vcpus), memory_mib: all(memory_mib), disk_mib: all(disk_mib) }
}
