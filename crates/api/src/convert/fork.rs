//! Forks and their receipts.

use sandling_engine::{Fork, ForkSpec, Receipt};
use sandling_protocol::ContextInfo;
use sandling_wire::{ContextForkView, ForkRequest, ForkView, SandboxView};

use super::repl::session_view;
use super::{IntoEngine, IntoWire, seconds};
use crate::error::ApiError;

/// The metadata key in which `explore` of the SDKs sends the TTL of the children.
const EXPLORE_TTL: &str = "explore_ttl";
/// The default number of children of a fork tree.
const USUAL_CHILDREN: usize = 2;
const MOST_CHILDREN: usize = 64;

pub(crate) fn fork_spec(request: ForkRequest, usual: DefaultCount) -> Result<ForkSpec, ApiError> {
    let children = request.count.unwrap_or(match usual {
        DefaultCount::One => 1,
        DefaultCount::Tree => USUAL_CHILDREN,
    });
    if !(1..=MOST_CHILDREN).contains(&children) {
        return Err(ApiError::bad_request(format!("count must be between 1 and {MOST_CHILDREN}")));
    }
    let metadata = request.metadata.unwrap_or_default();
    let explore = metadata.get(EXPLORE_TTL).map(|text| text.parse()).transpose();
    let explore = explore.map_err(|_| ApiError::bad_request(format!("{EXPLORE_TTL} must be a number of seconds")))?;
    Ok(ForkSpec {
        children,
        at: request.at.filter(|at| !at.is_empty()),
        ttl: seconds::lifetime("ttl_seconds", request.ttl_seconds.or(explore))?,
        idle: seconds::lifetime("idle_seconds", request.idle_seconds)?,
        persistent: request.persistent.unwrap_or_default(),
        metadata,
        labels: request.labels.unwrap_or_default(),
        settings: Default::default(),
        env: request.env,
        secrets: request.inherit_secrets.unwrap_or_default(),
        volumes: request.volumes.map(IntoEngine::into_engine),
    })
}

pub(crate) fn fork_view(forks: &[Fork]) -> ForkView {
    let children: Vec<SandboxView> = forks.iter().map(|fork| fork.sandbox.info().into_wire()).collect();
    let receipt = |receipt: &Receipt| serde_json::to_value(receipt).unwrap_or_default();
    let first = forks.first();
    let tree = first.and_then(|fork| fork.sandbox.info().fork).map(|place| place.tree);
    ForkView {
        tree_id: tree.unwrap_or_default(),
        parent_id: first.map(|fork| fork.receipt.parent.to_string()).unwrap_or_default(),
        snapshot_id: first.map(|fork| fork.receipt.snapshot.clone()).unwrap_or_default(),
        sandbox: if let [only] = children.as_slice() { Some(only.clone()) } else { None },
        children,
        receipts: forks.iter().map(|fork| receipt(&fork.receipt)).collect(),
        at: jiff::Timestamp::now().to_string(),
    }
}

pub(crate) fn context_fork_view(forks: &[Fork], contexts: Vec<ContextInfo>) -> ContextForkView {
    let sessions = forks.iter().zip(contexts).map(|(fork, info)| session_view(fork.sandbox.id().as_str(), info));
    ContextForkView { fork: fork_view(forks), contexts: sessions.collect() }
}

/// The default number of forks.
#[derive(Clone, Copy)]
pub(crate) enum DefaultCount {
    One,
    Tree,
}
