//! Tokens and workspaces: what is created on one node works on all, and what is revoked or deleted on one ends on all.
//!
//! Each node has all of them in its own database, which alone decides about requests, also while etcd is down. Every second,
//! and when etcd has something new, a node merges the records of etcd into its database and writes to etcd what is new in the
//! database.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::Method;
use sandling_engine::store::StoreError;
use sandling_fleet::LedgerError;
use sandling_service::{SharedToken, SharedWorkspace, WorkspaceName};
use serde::{Deserialize, Serialize};

use super::member::Fleet;
use crate::app::App;
use crate::delete_workspace::delete_workspace;

const TOKENS: &str = "token/";
const WORKSPACES: &str = "workspace/";
const LOOK_EVERY: Duration = Duration::from_secs(1);
const PUBLISH_WITHIN: Duration = Duration::from_secs(2);

#[derive(Serialize, Deserialize)]
struct WorkspaceRecord {
    deleted: bool,
}

/// What a node does about its own copy and that of etcd.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Nothing,
    /// The own copy lacks something.
    Adopt,
    /// The copy of etcd lacks something.
    Publish,
}

#[derive(Debug, thiserror::Error)]
enum ShareError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl Fleet {
    /// Shares tokens and workspaces with the other nodes. Runs until the future is dropped.
    pub(super) async fn share_accounts(&self, app: &App) {
        let news = tokio::sync::Notify::new();
        let follow = self.shared.follow(&self.membership, || news.notify_one());
        let merge = async {
            loop {
                let _ = tokio::time::timeout(LOOK_EVERY, news.notified()).await;
                // What fails now is tried again in the next round.
                if let Err(error) = self.merge(app).await {
                    tracing::debug!(error = &error as &dyn std::error::Error, "tokens cannot be shared now");
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

    async fn merge(&self, app: &App) -> Result<(), ShareError> {
        // A token needs its workspace.
        self.merge_workspaces(app).await?;
        self.merge_tokens(app).await
    }

    async fn merge_workspaces(&self, app: &App) -> Result<(), ShareError> {
        let own = app.service.workspaces.shared()?.into_iter();
        let mut own: BTreeMap<_, _> = own.map(|workspace| (workspace.name.to_string(), workspace)).collect();
        let Some(known) = self.shared.all(WORKSPACES) else { return Ok(()) };
        for (name, body) in known {
            let Ok(WorkspaceRecord { deleted }) = serde_json::from_str(&body) else { continue };
            let mine = own.remove(&name);
            let Some(parsed) = WorkspaceName::parse(&name) else { continue };
            match workspace_step(mine.as_ref(), Some(deleted), self.settings.joined_ms) {
                Step::Adopt if deleted => {
                    // As long as it has sandboxes here, it stays.
                    let _ = delete_workspace(app, &parsed).await;
                }
                Step::Adopt => drop(app.service.workspaces.adopt(&parsed)?),
                Step::Publish => self.publish_workspace(&name, true).await?,
                Step::Nothing => {}
            }
        }
        for (name, mine) in own {
            if workspace_step(Some(&mine), None, self.settings.joined_ms) == Step::Publish {
                self.publish_workspace(&name, false).await?;
            }
        }
        Ok(())
    }

    async fn publish_workspace(&self, name: &str, deleted: bool) -> Result<(), ShareError> {
        let body = serde_json::to_string(&WorkspaceRecord { deleted }).expect("a record has one field");
        Ok(self.shared.put(&self.membership, &format!("{WORKSPACES}{name}"), &body).await?)
    }

    async fn merge_tokens(&self, app: &App) -> Result<(), ShareError> {
        let own = app.service.tokens.shared()?.into_iter();
        let mut own: BTreeMap<_, _> = own.map(|token| (token.info.prefix.clone(), token)).collect();
        let mut has_ended = false;
        let Some(known) = self.shared.all(TOKENS) else { return Ok(()) };
        for (prefix, body) in known {
            let Ok(theirs) = serde_json::from_str::<SharedToken>(&body) else { continue };
            let mine = own.remove(&prefix);
            if theirs.is_forgotten() {
                self.shared.remove(&self.membership, &format!("{TOKENS}{prefix}")).await?;
                continue;
            }
            match (token_step(mine.as_ref(), Some(&theirs)), mine) {
                (Step::Adopt, _) => has_ended |= app.service.tokens.adopt(&theirs)?,
                (Step::Publish, Some(mine)) => self.publish_token(&mine).await?,
                _ => {}
            }
        }
        if has_ended {
            app.end_unauthorized();
        }
        for mine in own.into_values() {
            self.publish_token(&mine).await?;
        }
        Ok(())
    }

    async fn publish_token(&self, token: &SharedToken) -> Result<(), ShareError> {
        let body = serde_json::to_string(token).expect("a token has only text");
        Ok(self.shared.put(&self.membership, &format!("{TOKENS}{}", token.info.prefix), &body).await?)
    }
}

/// Whether a request can create or end a token or a workspace.
pub(super) fn may_change(method: &Method, path: &str) -> bool {
    let is_about = path.starts_with("/v1/workspaces") || path.starts_with("/v1/me/tokens");
    is_about && matches!(*method, Method::POST | Method::DELETE)
}

/// `theirs` says whether the workspace is deleted in etcd. What this machine deleted before it joined concerns no other.
fn workspace_step(mine: Option<&SharedWorkspace>, theirs: Option<bool>, joined_ms: i64) -> Step {
    match (mine.map(|mine| mine.deleted_at), theirs) {
        (None, Some(false)) | (Some(None), Some(true)) => Step::Adopt,
        (Some(None), None) => Step::Publish,
        (Some(Some(at)), Some(false)) if at.as_millisecond() >= joined_ms => Step::Publish,
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
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn a_workspace_is_everywhere_until_a_member_deletes_it() {
        let workspace = |deleted_ms: Option<i64>| SharedWorkspace {
            name: WorkspaceName::parse("team").unwrap(),
            deleted_at: deleted_ms.map(|at| Timestamp::from_millisecond(at).unwrap()),
        };
        let step = |mine: Option<Option<i64>>, theirs| workspace_step(mine.map(workspace).as_ref(), theirs, 10);
        assert_eq!(step(Some(None), None), Step::Publish);
        assert_eq!(step(None, Some(false)), Step::Adopt);
        assert_eq!(step(Some(None), Some(false)), Step::Nothing);
        assert_eq!(step(Some(None), Some(true)), Step::Adopt);
        assert_eq!(step(Some(Some(11)), Some(false)), Step::Publish);
        assert_eq!(step(Some(Some(9)), Some(false)), Step::Nothing, "deleted before the machine joined");
        for theirs in [None, Some(true)] {
            assert_eq!(step(Some(Some(11)), theirs), Step::Nothing);
        }
        assert_eq!(step(None, Some(true)), Step::Nothing);
    }
}
