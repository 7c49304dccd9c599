//! Snapshots.

use sandling_engine::SnapshotInfo;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::volume::VolumesName;

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SnapshotRequest {
    #[schema(max_length = 200)]
    pub(crate) name: Option<String>,
    /// What becomes of the sandbox's volumes in what is made of the snapshot. If it has any, it must be said.
    pub(crate) volumes: Option<VolumesName>,
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ImportParams {
    /// Instead of the name that it was exported with.
    pub(crate) name: Option<String>,
}

/// What template a snapshot becomes.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TemplateRequest {
    #[schema(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$")]
    pub(crate) name: String,
    #[schema(max_length = 200)]
    pub(crate) description: Option<String>,
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct SnapshotFilter {
    /// Only those of this sandbox, which may have ended.
    pub(crate) sandbox_id: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SnapshotView {
    id: String,
    name: Option<String>,
    sandbox_id: String,
    template: String,
    workspace: String,
    created_at: String,
    /// The snapshot that this one stores the differences to.
    parent_id: Option<String>,
    /// What it adds: memory and disk together.
    size_bytes: u64,
    memory_bytes: u64,
    disk_bytes: u64,
    /// How many layers its memory has.
    depth: usize,
    cpu: u32,
    memory_mb: u32,
    disk_mb: u32,
    digest: String,
}

impl From<SnapshotInfo> for SnapshotView {
    fn from(info: SnapshotInfo) -> Self {
        Self {
            id: info.id.to_string(),
            name: info.name,
            sandbox_id: info.sandbox.to_string(),
            template: info.template,
            workspace: info.workspace,
            created_at: info.created_at.to_string(),
            parent_id: info.parent.map(|id| id.to_string()),
            size_bytes: info.memory_bytes + info.disk_bytes,
            memory_bytes: info.memory_bytes,
            disk_bytes: info.disk_bytes,
            depth: info.memory.len(),
            cpu: info.vcpus,
            memory_mb: info.memory_mib,
            disk_mb: info.disk_mib,
            digest: info.digest,
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SnapshotList {
    pub(crate) snapshots: Vec<SnapshotView>,
}
