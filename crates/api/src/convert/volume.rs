//! Volumes.

use sandling_engine::{Attachment, OnVolumes, VolumeKind, VolumeSpec, VolumeView as Volume};
use sandling_wire::{MountedView, UserView, VolumeMount, VolumeView, VolumesName};

use super::{IntoEngine, IntoWire};

/// The default size of a volume.
pub(crate) const USUAL_MB: u32 = 256;

impl IntoWire for Volume {
    type Wire = VolumeView;

    fn into_wire(self) -> VolumeView {
        let info = self.info;
        let users = self.attached.into_iter();
        VolumeView {
            name: info.name,
            size_mb: info.size_mib,
            size_bytes: u64::from(info.size_mib) << 20,
            used_bytes: self.used_bytes,
            kind: if info.kind == VolumeKind::Snapshot { "snapshot" } else { "volume" },
            from: info.from,
            workspace: info.workspace,
            created_at: info.created_at.to_string(),
            attached_to: users.map(|(sandbox_id, writes)| UserView { sandbox_id, read_only: !writes }).collect(),
            node: None,
        }
    }
}

impl IntoEngine for VolumeMount {
    type Engine = VolumeSpec;

    fn into_engine(self) -> VolumeSpec {
        VolumeSpec {
            name: self.name,
            mount: self.mount.filter(|path| !path.is_empty()),
            read_only: self.read_only.unwrap_or_default(),
        }
    }
}

into_wire!(struct Attachment => MountedView { name, mount, read_only });
into_engine!(enum VolumesName => OnVolumes { Detach, ReadOnly, Clone });
