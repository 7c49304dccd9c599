//! Volumes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateVolume {
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    pub name: String,
    #[schema(minimum = 16, maximum = 65536, default = 256)]
    pub size_mb: Option<u32>,
}

/// The name of a copy.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CopyVolume {
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    pub name: String,
}

/// A copy of a volume.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CloneVolume {
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    pub name: String,
    /// In a fleet: the node that gets the copy; if absent, the node of the volume.
    pub node: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct VolumeView {
    pub name: String,
    pub size_mb: u32,
    pub size_bytes: u64,
    /// The space that it takes on the host.
    pub used_bytes: u64,
    /// `volume`, or `snapshot`, which can be read and cloned.
    pub kind: &'static str,
    /// The volume that it was copied from.
    pub from: Option<String>,
    pub workspace: String,
    pub created_at: String,
    pub attached_to: Vec<UserView>,
    /// In a list of a fleet: the node that has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// A sandbox that uses a volume.
#[derive(Debug, Serialize, ToSchema)]
pub struct UserView {
    pub sandbox_id: String,
    pub read_only: bool,
}

/// A volume to attach to a sandbox.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeMount {
    pub name: String,
    /// The mount point; `/mnt/` and its name if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<String>,
    /// Many sandboxes can read a volume, or one can write to it.
    #[serde(alias = "readOnly")]
    pub read_only: Option<bool>,
}

/// A volume that is attached to a sandbox.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct MountedView {
    pub name: String,
    pub mount: String,
    pub read_only: bool,
}

/// What the copies of a sandbox get of its volumes.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VolumesName {
    /// Copies have no volumes.
    Detach,
    /// Copies can read the content of that moment.
    ReadOnly,
    /// Each copy gets its own volumes with the content of that moment.
    Clone,
}
