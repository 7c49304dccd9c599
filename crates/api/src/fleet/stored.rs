//! Durable snapshots whose node does not answer: clients see what the fleet knows of them.

use std::collections::HashSet;
use std::sync::Arc;

use axum::Json;
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use sandling_engine::SnapshotId;
use sandling_fleet::node_tag;
use sandling_fleet::store::SnapshotRecord;
use sandling_service::Scope;
use serde_json::Value;

use super::find::Sought;
use super::member::{Fleet, unavailable, unreachable};
use crate::app::App;
use crate::auth::{presented, query_value};
use crate::error::ApiError;

const COLLECTION: &str = "/v1/snapshots/";

impl Fleet {
    /// Answers a request about a durable snapshot whose node does not answer. `None` if there is no such snapshot. If all nodes
    /// have answered that they do not have it, only one that is down can.
    pub(super) async fn answer_for_stored(
        &self,
        app: &App,
        sought: &Sought,
        parts: &Parts,
        all_answered: bool,
    ) -> Result<Option<Response>, ApiError> {
        let Some((workspace, named)) = sought.as_snapshot() else { return Ok(None) };
        let is_about_itself =
            parts.uri.path().strip_prefix(COLLECTION).is_some_and(|rest| !rest.trim_end_matches('/').contains('/'));
        let Some((id, record)) = self.stored(workspace, named).await? else { return Ok(None) };
        if all_answered && self.is_up(&record.node) {
            // Its node has deleted it a moment ago.
            return Ok(None);
        }
        match parts.method {
            Method::GET if is_about_itself => Ok(Some(Json(shown(&record)).into_response())),
            Method::DELETE if is_about_itself && self.has_left(&record.node) => {
                app.service.tokens.authenticate(&presented(parts))?.require(Scope::Run)?;
                self.delete_stored(workspace, &id, &record.node).await.map(Some)
            }
            _ => Err(unreachable(&record.node, "it made the snapshot and answers for it")),
        }
    }

    pub(super) fn is_up(&self, node: &str) -> bool {
        self.membership.members().iter().any(|member| *member.name == *node)
    }

    /// Whether a node was removed, so that it will not speak for its snapshots again.
    fn has_left(&self, node: &str) -> bool {
        matches!(self.membership.by_tag(node_tag(node)), Ok(None))
    }

    async fn delete_stored(&self, workspace: &str, id: &SnapshotId, node: &str) -> Result<Response, ApiError> {
        let failed = |why: &str| unavailable("cannot delete the snapshot", why);
        let removed = self.records().remove(workspace, id.as_str(), node).await;
        match removed.map_err(|error| failed(&error.to_string()))? {
            true => Ok(StatusCode::NO_CONTENT.into_response()),
            false => Err(failed("this node has lost its lease")),
        }
    }

    /// The durable snapshots of a workspace whose nodes are not among those that have listed theirs. Without etcd there are
    /// none.
    pub(super) async fn stored_elsewhere(&self, app: &App, parts: &Parts, answered: &HashSet<Arc<str>>) -> Vec<Value> {
        let Ok(principal) = app.service.tokens.authenticate(&presented(parts)) else { return Vec::new() };
        if !self.has_store() {
            return Vec::new();
        }
        let sandbox = query_value(parts.uri.query(), "sandbox_id");
        let all = self.records().of(principal.workspace.as_str()).await.unwrap_or_default().into_iter();
        let others = all.filter(|(_, record)| {
            record.listed && !answered.contains(&*record.node) && (sandbox.is_empty() || record.sandbox == sandbox)
        });
        others.map(|(_, record)| shown(&record)).collect()
    }
}

fn shown(record: &SnapshotRecord) -> Value {
    let mut view = record.view.clone();
    view["node"] = (*record.node).into();
    view
}
