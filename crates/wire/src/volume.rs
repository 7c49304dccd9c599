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

/// Under which name a copy is made.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CopyVolume {
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    pub name: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct VolumeView {
    pub name: String,
    pub size_mb: u32,
    pub size_bytes: u64,
    /// What it really takes on the host.
    pub used_bytes: u64,
    /// `volume`, or `snapshot`: a moment of one, which can be read and cloned.
    pub kind: &'static str,
    /// The volume that it is a copy of.
    pub from: Option<String>,
    pub workspace: String,
    pub created_at: String,
    pub attached_to: Vec<UserView>,
}

/// A sandbox that has a volume.
#[derive(Debug, Serialize, ToSchema)]
pub struct UserView {
    pub sandbox_id: String,
    pub read_only: bool,
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

/// A volume that a sandbox has.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct MountedView {
    pub name: String,
    pub mount: String,
    pub read_only: bool,
}

/// What becomes of a sandbox's volumes in its copies.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VolumesName {
    /// A copy has none of them.
    Detach,
    /// A copy can read what was on them at that moment.
    ReadOnly,
    /// A copy has volumes of its own, which begin with what was on them.
    Clone,
}
