//! Forks, and what becomes of them.

use std::collections::BTreeMap;

use sandling_engine::{Fork, ForkSpec, Receipt};
use sandling_protocol::ContextInfo;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::repl::SessionView;
use super::sandbox::SandboxView;
use super::seconds;
use super::volume::VolumesName;
use crate::error::ApiError;

/// What PandaStack's `explore` puts into the metadata of children that are to go by themselves.
const EXPLORE_TTL: &str = "explore_ttl";
/// How many children a tree has if nobody says.
const USUAL_CHILDREN: usize = 2;
const MOST_CHILDREN: usize = 64;

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ForkRequest {
    /// How many children: 1, or 2 for a tree, if absent.
    #[schema(minimum = 1, maximum = 64)]
    count: Option<usize>,
    metadata: Option<BTreeMap<String, String>>,
    labels: Option<BTreeMap<String, String>>,
    /// How long each child lives; absent: as long as its parent was given. `explore_ttl` in the metadata counts, too.
    #[schema(maximum = 31622400)]
    ttl_seconds: Option<u64>,
    #[schema(maximum = 31622400)]
    idle_seconds: Option<u64>,
    persistent: Option<bool>,
    /// What becomes of the parent's volumes. If it has any, it must be said.
    volumes: Option<VolumesName>,
    /// The environment of what is started in the children.
    env: Option<BTreeMap<String, String>>,
    /// Whether the children may use their parent's secrets; they have its network policy in any case.
    inherit_secrets: Option<bool>,
}

impl ForkRequest {
    pub(crate) fn into_spec(self, usual: Usual) -> Result<ForkSpec, ApiError> {
        let children = self.count.unwrap_or(match usual {
            Usual::One => 1,
            Usual::Tree => USUAL_CHILDREN,
        });
        if !(1..=MOST_CHILDREN).contains(&children) {
            return Err(ApiError::bad_request(format!("count must be between 1 and {MOST_CHILDREN}")));
        }
        let metadata = self.metadata.unwrap_or_default();
        let explore = metadata.get(EXPLORE_TTL).map(|text| text.parse()).transpose();
        let explore =
            explore.map_err(|_| ApiError::bad_request(format!("{EXPLORE_TTL} must be a number of seconds")))?;
        Ok(ForkSpec {
            children,
            ttl: seconds::lifetime("ttl_seconds", self.ttl_seconds.or(explore))?,
            idle: seconds::lifetime("idle_seconds", self.idle_seconds)?,
            persistent: self.persistent.unwrap_or_default(),
            metadata,
            labels: self.labels.unwrap_or_default(),
            env: self.env,
            secrets: self.inherit_secrets.unwrap_or_default(),
            volumes: self.volumes.map(Into::into),
        })
    }
}

/// What a request without a count asks for.
#[derive(Clone, Copy)]
pub(crate) enum Usual {
    One,
    Tree,
}

/// The children of a fork.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ForkView {
    tree_id: String,
    parent_id: String,
    snapshot_id: String,
    /// The only child, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    sandbox: Option<SandboxView>,
    children: Vec<SandboxView>,
    /// What each child can prove: what it shares with its parent, that it was reseeded, how long each step took.
    #[schema(value_type = Vec<Object>)]
    receipts: Vec<Value>,
    at: String,
}

impl ForkView {
    pub(crate) fn new(forks: &[Fork]) -> Self {
        let children: Vec<SandboxView> = forks.iter().map(|fork| fork.sandbox.info().into()).collect();
        let receipt = |receipt: &Receipt| serde_json::to_value(receipt).unwrap_or_default();
        let first = forks.first();
        let tree = first.and_then(|fork| fork.sandbox.info().metadata.get(sandling_engine::FORK_TREE).cloned());
        Self {
            tree_id: tree.unwrap_or_default(),
            parent_id: first.map(|fork| fork.receipt.parent.to_string()).unwrap_or_default(),
            snapshot_id: first.map(|fork| fork.receipt.snapshot.clone()).unwrap_or_default(),
            sandbox: if let [only] = children.as_slice() { Some(only.clone()) } else { None },
            children,
            receipts: forks.iter().map(|fork| receipt(&fork.receipt)).collect(),
            at: jiff::Timestamp::now().to_string(),
        }
    }
}

/// The children of a fork of a context.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ContextForkView {
    #[serde(flatten)]
    fork: ForkView,
    /// The interpreter in each child, in the order of the children.
    contexts: Vec<SessionView>,
}

impl ContextForkView {
    pub(crate) fn new(forks: &[Fork], contexts: Vec<ContextInfo>) -> Self {
        let sessions =
            forks.iter().zip(contexts).map(|(fork, info)| SessionView::new(fork.sandbox.id().as_str(), info));
        Self { fork: ForkView::new(forks), contexts: sessions.collect() }
    }
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PromoteRequest {
    /// Whether the other children of the same fork are ended.
    #[serde(default)]
    pub(crate) cleanup_siblings: bool,
    /// Which fork; absent: the one that the child comes from.
    pub(crate) tree_id: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PromoteView {
    pub(crate) winner: String,
    pub(crate) tree_id: String,
    pub(crate) deleted: Vec<String>,
    /// Siblings that could not be ended, and why.
    pub(crate) failures: BTreeMap<String, String>,
}

/// A sandbox in its family.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RelativeView {
    pub(crate) id: String,
    pub(crate) parent_id: Option<String>,
    pub(crate) created_at: String,
}
