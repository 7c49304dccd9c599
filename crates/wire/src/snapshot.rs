//! Snapshots.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::volume::VolumesName;

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotRequest {
    #[schema(max_length = 200)]
    pub name: Option<String>,
    /// What sandboxes created from the snapshot get of the volumes; required if the sandbox has any.
    pub volumes: Option<VolumesName>,
    /// If false, only the disk is saved, and sandboxes created from the snapshot boot.
    pub keep_memory: Option<bool>,
    /// If true, the response comes when the snapshot is in the fleet's store. The server must be in a fleet with a store.
    pub durable: Option<bool>,
}

/// `local`: only its node has it. `durable`: the fleet's store has it, so any node can create sandboxes from it, also if its
/// own node is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    Local,
    Durable,
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ImportParams {
    /// Replaces the name in the export.
    pub name: Option<String>,
}

/// The template that a snapshot becomes.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TemplateRequest {
    #[schema(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$")]
    pub name: String,
    #[schema(max_length = 200)]
    pub description: Option<String>,
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct SnapshotFilter {
    /// Only snapshots of this sandbox, which may have ended.
    pub sandbox_id: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct SnapshotView {
    pub id: String,
    pub name: Option<String>,
    pub sandbox_id: String,
    pub template: String,
    pub workspace: String,
    pub created_at: String,
    /// The snapshot that this one stores its differences to.
    pub parent_id: Option<String>,
    /// What it adds to its parent: memory and disk.
    pub size_bytes: u64,
    pub memory_bytes: u64,
    pub disk_bytes: u64,
    /// The number of memory layers; 0 if only the disk was saved.
    pub depth: usize,
    pub cpu: u32,
    pub memory_mb: u32,
    pub disk_mb: u32,
    pub digest: String,
    /// Whether it survives the loss of its node.
    pub durability: Durability,
    /// In a list of a fleet: the node that has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct SnapshotList {
    pub snapshots: Vec<SnapshotView>,
}
