//! Snapshots.

use sandling_engine::SnapshotInfo;
use sandling_wire::{Durability, SnapshotView};

use super::IntoWire;

impl IntoWire for SnapshotInfo {
    type Wire = SnapshotView;

    fn into_wire(self) -> SnapshotView {
        SnapshotView {
            id: self.id.to_string(),
            name: self.name,
            sandbox_id: self.sandbox.to_string(),
            template: self.template,
            workspace: self.workspace,
            created_at: self.created_at.to_string(),
            parent_id: self.parent.map(|id| id.to_string()),
            size_bytes: self.memory_bytes + self.disk_bytes,
            memory_bytes: self.memory_bytes,
            disk_bytes: self.disk_bytes,
            depth: self.memory.len(),
            cpu: self.vcpus,
            memory_mb: self.memory_mib,
            disk_mb: self.disk_mib,
            digest: self.digest,
            durability: Durability::Local,
            node: None,
        }
    }
}
