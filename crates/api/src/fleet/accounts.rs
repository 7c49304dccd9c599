//! Tokens and workspaces: what is created on one node works on all, and what is revoked or deleted on one ends on all.
//!
//! Each node has all of them in its own database, which alone decides about requests, also while etcd is down. Every second,
//! and when etcd has something new, a node merges the records of etcd into its database and writes to etcd what is new in the
//! database.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use axum::http::Method;
use jiff::Timestamp;
use sandling_service::{SharedToken, SharedWorkspace, WorkspaceName};
use serde::{Deserialize, Serialize};

use super::member::Fleet;
use crate::app::App;
use crate::delete_workspace::delete_workspace;

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
struct Rest {
    /// Names of records, and their new bodies. Without a body, the record is removed.
    writes: Vec<(String, Option<String>)>,
    deletions: Vec<WorkspaceName>,
    kept: Vec<WorkspaceName>,
}

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

    /// Tells the other nodes of a change before the client hears of it, so that it can use its new token at once. What takes
    /// too long happens later.
    pub(super) async fn publish_accounts(&self, app: &App) {
        let _ = tokio::time::timeout(PUBLISH_WITHIN, self.merge(app)).await;
    }

    /// What fails is tried again in the next round, and stops nothing else. Returns the workspaces of [`Step::Keep`].
    async fn merge(&self, app: &App) -> Vec<WorkspaceName> {
        let mut rest = Rest::default();
        if !self.membership.belongs() {
            return rest.kept;
        }
        // Revocations wait neither for a write to etcd nor for a deletion. A token needs its workspace.
        self.adopt_workspaces(app, &mut rest);
        self.adopt_tokens(app, &mut rest);
        let finish = async {
            for (name, body) in &rest.writes {
                or_later(match body {
                    Some(body) => self.shared.put(&self.membership, name, body).await,
                    None => self.shared.remove(&self.membership, name).await,
                });
            }
            for name in &rest.deletions {
                // As long as it has sandboxes here, it stays.
                let _ = delete_workspace(app, name).await;
            }
        };
        let _ = tokio::time::timeout(REST_WITHIN, finish).await;
        rest.kept
    }

    fn adopt_workspaces(&self, app: &App, rest: &mut Rest) {
        let own = or_later(app.service.workspaces.shared()).into_iter();
        let mut own: BTreeMap<_, _> = own.map(|workspace| (workspace.name.to_string(), workspace)).collect();
        let Some(known) = self.shared.all(WORKSPACES) else { return };
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

    fn adopt_tokens(&self, app: &App, rest: &mut Rest) {
        let own = or_later(app.service.tokens.shared()).into_iter();
        let mut own: BTreeMap<_, _> = own.map(|token| (token.info.prefix.clone(), token)).collect();
        let mut has_ended = false;
        let Some(known) = self.shared.all(TOKENS) else { return };
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
        tracing::debug!(error = &error as &dyn std::error::Error, "tokens cannot be shared now");
        T::default()
    })
}

/// Whether a request can create or end a token or a workspace.
pub(super) fn may_change(method: &Method, path: &str) -> bool {
    let is_about = path.starts_with("/v1/workspaces") || path.starts_with("/v1/me/tokens");
    is_about && matches!(*method, Method::POST | Method::DELETE)
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
