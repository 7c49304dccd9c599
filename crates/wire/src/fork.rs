//! Forks, and what becomes of them.

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
    /// How many children: 1, or 2 for a tree, if absent.
    #[schema(minimum = 1, maximum = 64)]
    pub count: Option<usize>,
    pub metadata: Option<BTreeMap<String, String>>,
    pub labels: Option<BTreeMap<String, String>>,
    /// How long each child lives; absent: as long as its parent was given. `explore_ttl` in the metadata counts, too.
    #[schema(maximum = 31622400)]
    pub ttl_seconds: Option<u64>,
    #[schema(maximum = 31622400)]
    pub idle_seconds: Option<u64>,
    pub persistent: Option<bool>,
    /// What becomes of the parent's volumes. If it has any, it must be said.
    pub volumes: Option<VolumesName>,
    /// The environment of what is started in the children.
    pub env: Option<BTreeMap<String, String>>,
    /// Whether the children may use their parent's secrets; they have its network policy in any case.
    pub inherit_secrets: Option<bool>,
}

/// The children of a fork.
#[derive(Debug, Serialize, ToSchema)]
pub struct ForkView {
    pub tree_id: String,
    pub parent_id: String,
    pub snapshot_id: String,
    /// The only child, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxView>,
    pub children: Vec<SandboxView>,
    /// What each child can prove: what it shares with its parent, that it was reseeded, how long each step took.
    #[schema(value_type = Vec<Object>)]
    pub receipts: Vec<Value>,
    pub at: String,
}

/// The children of a fork of a context.
#[derive(Debug, Serialize, ToSchema)]
pub struct ContextForkView {
    #[serde(flatten)]
    pub fork: ForkView,
    /// The interpreter in each child, in the order of the children.
    pub contexts: Vec<SessionView>,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PromoteRequest {
    /// Whether the other children of the same fork are ended.
    #[serde(default)]
    pub cleanup_siblings: bool,
    /// Which fork; absent: the one that the child comes from.
    pub tree_id: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct PromoteView {
    pub winner: String,
    pub tree_id: String,
    pub deleted: Vec<String>,
    /// Siblings that could not be ended, and why.
    pub failures: BTreeMap<String, String>,
}

/// A sandbox in its family.
#[derive(Debug, Serialize, ToSchema)]
pub struct RelativeView {
    pub id: String,
    pub parent_id: Option<String>,
    pub created_at: String,
}
