//! Forks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::repl::SessionView;
use crate::sandbox::SandboxView;
use crate::volume::VolumesName;

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForkRequest {
    /// How many children; if absent, 1, or 2 for a tree.
    #[schema(minimum = 1, maximum = 64)]
    pub count: Option<usize>,
    /// The number or name of a checkpoint. The children start there, and the sandbox itself does not change. If absent,
    /// they start at this moment.
    #[serde(default, deserialize_with = "crate::timeline::optional_number_or_name")]
    #[schema(value_type = Option<String>)]
    pub at: Option<String>,
    pub metadata: Option<BTreeMap<String, String>>,
    pub labels: Option<BTreeMap<String, String>>,
    /// The time to live of each child; if absent, `explore_ttl` in the metadata, else that of the parent.
    #[schema(maximum = 31622400)]
    pub ttl_seconds: Option<u64>,
    #[schema(maximum = 31622400)]
    pub idle_seconds: Option<u64>,
    pub persistent: Option<bool>,
    /// What the children get of the parent's volumes; required if it has any.
    pub volumes: Option<VolumesName>,
    /// Environment variables of new processes in the children.
    pub env: Option<BTreeMap<String, String>>,
    /// Whether the children may use the parent's secrets. They have its network policy in any case.
    pub inherit_secrets: Option<bool>,
}

/// The children of a fork.
#[derive(Debug, Serialize, ToSchema)]
pub struct ForkView {
    pub tree_id: String,
    pub parent_id: String,
    pub snapshot_id: String,
    /// The child, if there is exactly one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxView>,
    pub children: Vec<SandboxView>,
    /// One per child: what it shares with its parent, the proof of its new random seed, and the time of each step.
    #[schema(value_type = Vec<Object>)]
    pub receipts: Vec<Value>,
    pub at: String,
}

/// The children of a fork of a context.
#[derive(Debug, Serialize, ToSchema)]
pub struct ContextForkView {
    #[serde(flatten)]
    pub fork: ForkView,
    /// The interpreter of each child, in the order of the children.
    pub contexts: Vec<SessionView>,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PromoteRequest {
    /// Whether to end the other children of the same fork.
    #[serde(default)]
    pub cleanup_siblings: bool,
    /// The fork; if absent, the one that the child comes from.
    pub tree_id: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct PromoteView {
    pub winner: String,
    pub tree_id: String,
    pub deleted: Vec<String>,
    /// The siblings that could not be ended, with the reason.
    pub failures: BTreeMap<String, String>,
}

/// A sandbox among its relatives.
#[derive(Debug, Serialize, ToSchema)]
pub struct RelativeView {
    pub id: String,
    pub parent_id: Option<String>,
    pub created_at: String,
}
