//! Quotas hold for all nodes together: each tells the others what it has of a workspace's quota.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use http_body_util::BodyExt;
use sandling_fleet::Member;
use sandling_service::{Asking, Claimed, OtherClaim, OtherHomes, WorkspaceName};

use super::member::Fleet;
use crate::app::App;
use crate::auth::query_value;

pub(super) const PATH: &str = "/fleet/quota";
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// For how long what a node has said counts if it does not answer.
const REMEMBERED_FOR: Duration = Duration::from_secs(60);

/// The other nodes, as the quotas of this one see them.
pub(super) struct OtherNodes {
    fleet: Weak<Fleet>,
    app: Weak<App>,
    /// What each node has said last.
    heard: Mutex<HashMap<(Arc<str>, WorkspaceName), Heard>>,
}

struct Heard {
    at: Instant,
    claimed: Claimed,
}

impl OtherNodes {
    pub(super) fn new(fleet: &Arc<Fleet>, app: &Arc<App>) -> Arc<Self> {
        Arc::new(Self { fleet: Arc::downgrade(fleet), app: Arc::downgrade(app), heard: Mutex::default() })
    }

    async fn ask_all(&self, workspace: &WorkspaceName, recall: bool) -> Vec<OtherClaim> {
        let (Some(fleet), Some(app)) = (self.fleet.upgrade(), self.app.upgrade()) else { return Vec::new() };
        let own = fleet.membership.name();
        let query = [("workspace", workspace.as_str()), ("by", own), ("recall", if recall { "yes" } else { "" })];
        let path = &format!("{PATH}?{}", serde_urlencoded::to_string(query).unwrap_or_default());
        let (fleet, app) = (&fleet, &app);
        let asks = fleet.others().into_iter().map(|member| async move {
            let asked = tokio::time::timeout(ANSWER_WITHIN, ask(fleet, app, &member, path)).await;
            let claimed = self.remember(&member, workspace, asked.ok().flatten());
            OtherClaim { has_priority: *member.name < *own, claimed }
        });
        join_all(asks).await
    }

    /// A node that does not answer counts with what it said last.
    fn remember(&self, member: &Member, workspace: &WorkspaceName, claimed: Option<Claimed>) -> Claimed {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (member.name.clone(), workspace.clone());
        match claimed {
            Some(claimed) => {
                heard.retain(|_, heard| heard.at.elapsed() < REMEMBERED_FOR);
                heard.insert(key, Heard { at: Instant::now(), claimed });
                claimed
            }
            None => heard.get(&key).map(|heard| heard.claimed).unwrap_or_default(),
        }
    }
}

impl OtherHomes for OtherNodes {
    fn ask<'a>(&'a self, workspace: &'a WorkspaceName, recall: bool) -> Asking<'a> {
        Box::pin(self.ask_all(workspace, recall))
    }
}

async fn ask(fleet: &Fleet, app: &App, member: &Member, path: &str) -> Option<Claimed> {
    let response = fleet.ask(app, member, path).await.ok().filter(|response| response.status() == StatusCode::OK)?;
    let body = response.into_body().collect().await.ok()?.to_bytes();
    serde_json::from_slice(&body).ok()
}

/// Answers another node.
pub(super) fn answer(fleet: &Fleet, app: &App, request: &Request) -> Response {
    let value = |name| query_value(request.uri().query(), name);
    let Some(workspace) = WorkspaceName::parse(&value("workspace")) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let has_priority = *value("by") < *fleet.membership.name();
    let service = &app.service;
    let in_use = || service.sandboxes.usage(&workspace);
    let claimed = service.admission.claimed(&workspace, value("recall") == "yes", has_priority, in_use);
    Json(claimed).into_response()
}
