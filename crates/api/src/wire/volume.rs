//! Volumes.

use sandling_engine::{Attachment, OnVolumes, VolumeKind, VolumeView as Volume, VolumeWish};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The size of a volume if nobody says.
pub(crate) const USUAL_MB: u32 = 256;

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateVolume {
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    pub(crate) name: String,
    #[schema(minimum = 16, maximum = 65536, default = 256)]
    pub(crate) size_mb: Option<u32>,
}

/// Under which name a copy is made.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CopyVolume {
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    pub(crate) name: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct VolumeView {
    name: String,
    size_mb: u32,
    size_bytes: u64,
    /// What it really takes on the host.
    used_bytes: u64,
    /// `volume`, or `snapshot`: a moment of one, which can be read and cloned.
    kind: &'static str,
    /// The volume that it is a copy of.
    from: Option<String>,
    workspace: String,
    created_at: String,
    attached_to: Vec<UserView>,
}

/// A sandbox that has a volume.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UserView {
    sandbox_id: String,
    read_only: bool,
}

impl From<Volume> for VolumeView {
    fn from(volume: Volume) -> Self {
        let info = volume.info;
        let users = volume.attached.into_iter();
        Self {
            name: info.name,
            size_mb: info.size_mib,
            size_bytes: u64::from(info.size_mib) << 20,
            used_bytes: volume.used_bytes,
            kind: if info.kind == VolumeKind::Snapshot { "snapshot" } else { "volume" },
            from: info.from,
            workspace: info.workspace,
            created_at: info.created_at.to_string(),
            attached_to: users.map(|(sandbox_id, writes)| UserView { sandbox_id, read_only: !writes }).collect(),
        }
    }
}

/// A volume that a sandbox is to have.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeMount {
    pub name: String,
    /// Where it is to be; absent: `/mnt/` and its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<String>,
    /// Many sandboxes can read a volume, or one can write it.
    #[serde(alias = "readOnly")]
    pub read_only: Option<bool>,
}

impl From<VolumeMount> for VolumeWish {
    fn from(mount: VolumeMount) -> Self {
        Self {
            name: mount.name,
            mount: mount.mount.filter(|path| !path.is_empty()),
            read_only: mount.read_only.unwrap_or_default(),
        }
    }
}

/// A volume that a sandbox has.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct MountedView {
    name: String,
    mount: String,
    read_only: bool,
}

impl From<Attachment> for MountedView {
    fn from(attachment: Attachment) -> Self {
        Self { name: attachment.name, mount: attachment.mount, read_only: attachment.read_only }
    }
}

/// What becomes of a sandbox's volumes in its copies.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum VolumesName {
    /// A copy has none of them.
    Detach,
    /// A copy can read what was on them at that moment.
    ReadOnly,
    /// A copy has volumes of its own, which begin with what was on them.
    Clone,
}

impl From<VolumesName> for OnVolumes {
    fn from(name: VolumesName) -> Self {
        match name {
            VolumesName::Detach => Self::Detach,
            VolumesName::ReadOnly => Self::ReadOnly,
            VolumesName::Clone => Self::Clone,
        }
    }
}
