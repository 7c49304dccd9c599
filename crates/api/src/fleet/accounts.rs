//! Tokens, workspaces and their settings: what is created or set on one node holds on all, and what is revoked or deleted on
//! one ends on all.
//!
//! Each node has all of them in its own database, which alone decides about requests, also while etcd is down. Every second,
//! and when etcd has something new, a node merges the records of etcd into its database and writes to etcd what is new in the
//! database. A node that changes something for a client also sends it to the others, and waits a moment for their answers.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use jiff::Timestamp;
use sandling_fleet::Member;
use sandling_service::{SharedToken, SharedWorkspace, WorkspaceName};
use serde::{Deserialize, Serialize};

use super::here::Here;
use super::member::Fleet;
use crate::app::App;
use crate::delete_workspace::delete_workspace;
use crate::error::ApiError;

/// Where a node sends what it has changed.
pub(super) const PATH: &str = "/fleet/shared";

const TOKENS: &str = "token/";
const WORKSPACES: &str = "workspace/";
const LOOK_EVERY: Duration = Duration::from_secs(1);
const PUBLISH_WITHIN: Duration = Duration::from_secs(2);
/// What one round may take after it has adopted what is new in etcd.
const REST_WITHIN: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Serialize, Deserialize)]
struct WorkspaceRecord {
    deleted: bool,
    /// Records of earlier versions lack it.
    #[serde(default)]
    deleted_ms: Option<i64>,
}

/// What a node does about its own copy and that of etcd.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Nothing,
    /// The own copy lacks something.
    Adopt,
    /// The copy of etcd lacks something.
    Publish,
    /// This machine had the workspace before it joined, and the fleet had deleted one of the same name earlier.
    Keep,
}

/// What is left to do after everything new in etcd is adopted, but for deletions.
#[derive(Default)]
pub(super) struct Rest {
    /// Names of records, and their new bodies. Without a body, the record is removed.
    pub(super) writes: Vec<(String, Option<String>)>,
    deletions: Vec<WorkspaceName>,
    pub(super) kept: Vec<WorkspaceName>,
}

/// Records that another node sends, by name. They are newer than those of etcd.
pub(super) type Pushed = BTreeMap<String, String>;

impl Rest {
    fn write_workspace(&mut self, name: &str, deleted_at: Option<Timestamp>) {
        let deleted_ms = deleted_at.map(Timestamp::as_millisecond);
        let record = WorkspaceRecord { deleted: deleted_ms.is_some(), deleted_ms };
        let body = serde_json::to_string(&record).expect("a record has no maps");
        self.writes.push((format!("{WORKSPACES}{name}"), Some(body)));
    }

    fn write_token(&mut self, token: &SharedToken) {
        let body = serde_json::to_string(token).expect("a token has only text");
        self.writes.push((format!("{TOKENS}{}", token.info.prefix), Some(body)));
    }
}

impl Fleet {
    /// Shares tokens and workspaces with the other nodes. Runs until the future is dropped.
    pub(super) async fn share_accounts(&self, app: &App) {
        let news = tokio::sync::Notify::new();
        let follow = self.shared.follow(&self.membership, || news.notify_one());
        let merge = async {
            let mut reported = HashSet::new();
            loop {
                let _ = tokio::time::timeout(LOOK_EVERY, news.notified()).await;
                for workspace in self.merge(app).await {
                    if reported.insert(workspace.clone()) {
                        tracing::warn!(
                            workspace = workspace.as_str(),
                            "the fleet deleted a workspace of this name before this machine joined; the workspace here \
                             stays and works on this node only"
                        );
                    }
                }
            }
        };
        tokio::join!(follow, merge);
    }

    /// Answers a client. If that has changed something of a workspace, tells the other nodes before the client hears of it, so
    /// that it holds through any node at once. What takes too long happens later.
    pub(super) async fn answer_and_publish(&self, app: &App, request: Request, here: Here<'_>) -> Response {
        let response = here.answer(request).await;
        if response.status().is_success() && self.membership.belongs() {
            let rest = self.adopt(app, &Pushed::new());
            let tell = async { tokio::join!(self.write(&rest), self.push(app, &rest)) };
            let _ = tokio::time::timeout(PUBLISH_WITHIN, tell).await;
        }
        response
    }

    /// Sends what is new here to all other nodes.
    async fn push(&self, app: &App, rest: &Rest) {
        let news = rest.writes.iter().filter_map(|(name, body)| Some((name, body.as_ref()?)));
        let news: BTreeMap<_, _> = news.collect();
        if news.is_empty() {
            return;
        }
        let body = serde_json::to_string(&news).expect("records are text");
        let send = |member: Member| {
            let request = Request::post(PATH).header("host", "fleet").body(Body::from(body.clone()));
            async move { self.forward(app, &member, request.expect("the path is valid")).await }
        };
        join_all(self.others().into_iter().map(send)).await;
    }

    /// Takes what another node has changed.
    pub(super) async fn answer_push(&self, app: &App, request: Request) -> Result<Response, ApiError> {
        let body = crate::extract::read(request.into_body()).await?;
        let pushed: Pushed = serde_json::from_slice(&body).map_err(|error| ApiError::bad_request(error.to_string()))?;
        if self.membership.belongs() {
            let rest = self.adopt(app, &pushed);
            delete_workspaces(app, &rest).await;
        }
        Ok(StatusCode::NO_CONTENT.into_response())
    }

    /// What fails is tried again in the next round, and stops nothing else. Returns the workspaces of [`Step::Keep`].
    async fn merge(&self, app: &App) -> Vec<WorkspaceName> {
        if !self.membership.belongs() {
            return Vec::new();
        }
        let rest = self.adopt(app, &Pushed::new());
        let finish = async {
            self.write(&rest).await;
            delete_workspaces(app, &rest).await;
        };
        let _ = tokio::time::timeout(REST_WITHIN, finish).await;
        rest.kept
    }

    /// Merges what is new elsewhere. Revocations wait neither for a write to etcd nor for a deletion.
    fn adopt(&self, app: &App, pushed: &Pushed) -> Rest {
        let mut rest = Rest::default();
        // A token needs its workspace, and so does a setting.
        self.adopt_workspaces(app, pushed, &mut rest);
        self.adopt_tokens(app, pushed, &mut rest);
        or_later(self.adopt_settings(app, pushed, &mut rest));
        rest
    }

    async fn write(&self, rest: &Rest) {
        for (name, body) in &rest.writes {
            or_later(match body {
                Some(body) => self.shared.put(&self.membership, name, body).await,
                None => self.shared.remove(&self.membership, name).await,
            });
        }
    }

    /// The records whose names have a prefix, without it. `None` before those of etcd are read, unless some were pushed.
    pub(super) fn shared_records(&self, prefix: &str, pushed: &Pushed) -> Option<BTreeMap<String, String>> {
        let of_etcd = self.shared.all(prefix);
        let pushed =
            pushed.iter().filter_map(|(name, body)| Some((name.strip_prefix(prefix)?.to_owned(), body.clone())));
        let pushed: Vec<_> = pushed.collect();
        (of_etcd.is_some() || !pushed.is_empty())
            .then(|| of_etcd.unwrap_or_default().into_iter().chain(pushed).collect())
    }

    fn adopt_workspaces(&self, app: &App, pushed: &Pushed, rest: &mut Rest) {
        let own = or_later(app.service.workspaces.shared()).into_iter();
        let mut own: BTreeMap<_, _> = own.map(|workspace| (workspace.name.to_string(), workspace)).collect();
        let Some(known) = self.shared_records(WORKSPACES, pushed) else { return };
        for (name, body) in known {
            let Ok(theirs) = serde_json::from_str::<WorkspaceRecord>(&body) else { continue };
            let mine = own.remove(&name);
            let Some(parsed) = WorkspaceName::parse(&name) else { continue };
            match (workspace_step(mine.as_ref(), Some(theirs), self.settings.joined_ms), mine) {
                (Step::Adopt, Some(_)) => rest.deletions.push(parsed),
                (Step::Adopt, None) if theirs.deleted => {
                    let deleted_at = theirs.deleted_ms.and_then(|at| Timestamp::from_millisecond(at).ok());
                    let deleted_at = deleted_at.unwrap_or_else(Timestamp::now);
                    or_later(app.service.workspaces.adopt_deleted(&parsed, deleted_at));
                }
                (Step::Adopt, None) => drop(or_later(app.service.workspaces.adopt(&parsed))),
                (Step::Publish, Some(mine)) => rest.write_workspace(&name, mine.deleted_at),
                (Step::Keep, _) => rest.kept.push(parsed),
                _ => {}
            }
        }
        for (name, mine) in own {
            if workspace_step(Some(&mine), None, self.settings.joined_ms) == Step::Publish {
                rest.write_workspace(&name, mine.deleted_at);
            }
        }
    }

    fn adopt_tokens(&self, app: &App, pushed: &Pushed, rest: &mut Rest) {
        let own = or_later(app.service.tokens.shared()).into_iter();
        let mut own: BTreeMap<_, _> = own.map(|token| (token.info.prefix.clone(), token)).collect();
        let mut has_ended = false;
        let Some(known) = self.shared_records(TOKENS, pushed) else { return };
        for (prefix, body) in known {
            let Ok(theirs) = serde_json::from_str::<SharedToken>(&body) else { continue };
            let mine = own.remove(&prefix);
            if theirs.is_forgotten() {
                rest.writes.push((format!("{TOKENS}{prefix}"), None));
                continue;
            }
            match (token_step(mine.as_ref(), Some(&theirs)), mine) {
                (Step::Adopt, _) => has_ended |= or_later(app.service.tokens.adopt(&theirs)),
                (Step::Publish, Some(mine)) => rest.write_token(&mine),
                _ => {}
            }
        }
        if has_ended {
            app.end_unauthorized();
        }
        own.values().for_each(|mine| rest.write_token(mine));
    }
}

/// The result, or nothing if it failed: the next round tries again.
fn or_later<T: Default>(result: Result<T, impl std::error::Error + 'static>) -> T {
    result.unwrap_or_else(|error| {
        tracing::debug!(error = &error as &dyn std::error::Error, "tokens and settings cannot be shared now");
        T::default()
    })
}

async fn delete_workspaces(app: &App, rest: &Rest) {
    for name in &rest.deletions {
        // As long as it has sandboxes here, it stays.
        let _ = delete_workspace(app, name).await;
    }
}

/// Whether a request can change a token, a workspace or a setting of one.
pub(super) fn may_change(method: &Method, path: &str) -> bool {
    let prefixes = ["/v1/workspaces", "/v1/me/tokens", "/v1/network", "/v1/secrets"];
    let is_about = prefixes.iter().any(|prefix| path.starts_with(prefix))
        || path.starts_with("/v1/templates/") && path.ends_with("/network");
    is_about && !matches!(*method, Method::GET | Method::HEAD)
}

/// What this machine deleted before it joined concerns no other node, and what the fleet deleted before concerns none here.
fn workspace_step(mine: Option<&SharedWorkspace>, theirs: Option<WorkspaceRecord>, joined_ms: i64) -> Step {
    let Some(theirs) = theirs else {
        return if mine.is_some_and(|mine| mine.deleted_at.is_none()) { Step::Publish } else { Step::Nothing };
    };
    let is_since_join = |deleted_ms: Option<i64>| deleted_ms.is_some_and(|at| at >= joined_ms);
    match (mine.map(|mine| mine.deleted_at.map(Timestamp::as_millisecond)), theirs.deleted) {
        (None, _) => Step::Adopt,
        (Some(None), true) if is_since_join(theirs.deleted_ms) => Step::Adopt,
        (Some(None), true) => Step::Keep,
        (Some(deleted_ms), false) if is_since_join(deleted_ms) => Step::Publish,
        _ => Step::Nothing,
    }
}

fn token_step(mine: Option<&SharedToken>, theirs: Option<&SharedToken>) -> Step {
    match (mine, theirs) {
        (None, Some(_)) => Step::Adopt,
        (Some(_), None) => Step::Publish,
        (Some(mine), Some(theirs)) if theirs.is_news_to(mine) => Step::Adopt,
        (Some(mine), Some(theirs)) if mine.is_news_to(theirs) => Step::Publish,
        _ => Step::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIVE: WorkspaceRecord = WorkspaceRecord { deleted: false, deleted_ms: None };

    fn deleted(at: i64) -> WorkspaceRecord {
        WorkspaceRecord { deleted: true, deleted_ms: Some(at) }
    }

    fn step(mine: Option<Option<i64>>, theirs: Option<WorkspaceRecord>) -> Step {
        let mine = mine.map(|deleted_ms| SharedWorkspace {
            name: WorkspaceName::parse("team").unwrap(),
            deleted_at: deleted_ms.map(|at| Timestamp::from_millisecond(at).unwrap()),
        });
        workspace_step(mine.as_ref(), theirs, 10)
    }

    #[test]
    fn a_workspace_is_everywhere_until_a_member_deletes_it() {
        assert_eq!(step(Some(None), None), Step::Publish);
        assert_eq!(step(None, Some(LIVE)), Step::Adopt);
        assert_eq!(step(Some(None), Some(LIVE)), Step::Nothing);
        assert_eq!(step(Some(None), Some(deleted(11))), Step::Adopt);
        assert_eq!(step(Some(Some(11)), Some(LIVE)), Step::Publish);
        for theirs in [None, Some(deleted(11))] {
            assert_eq!(step(Some(Some(11)), theirs), Step::Nothing);
        }
        assert_eq!(step(None, Some(deleted(11))), Step::Adopt, "its name is taken here, too");
    }

    #[test]
    fn deletions_from_before_a_machine_joined_delete_nothing() {
        assert_eq!(step(Some(Some(9)), Some(LIVE)), Step::Nothing);
        assert_eq!(step(Some(None), Some(deleted(9))), Step::Keep);
        let old: WorkspaceRecord = serde_json::from_str(r#"{"deleted":true}"#).unwrap();
        assert_eq!(step(Some(None), Some(old)), Step::Keep, "nobody knows when");
        assert_eq!(step(None, Some(deleted(9))), Step::Adopt);
    }

    #[test]
    fn a_record_says_when_a_workspace_was_deleted() {
        let mut rest = Rest::default();
        rest.write_workspace("live", None);
        rest.write_workspace("gone", Some(Timestamp::from_millisecond(11).unwrap()));
        let read = |body: &str| serde_json::from_str::<WorkspaceRecord>(body).unwrap();
        let records: Vec<_> = rest.writes.iter().map(|(_, body)| read(body.as_ref().unwrap())).collect();
        assert!(!records[0].deleted && records[1].deleted && records[1].deleted_ms == Some(11));
    }
}
