//! Creates that this node was chosen for.
//!
//! If this node cannot take a sandbox, it declines, and another node can be tried. It is the node itself that gives up the
//! request's idempotency key in the ledger, while no other create with this key runs on it, and it checks before each create
//! that it has the key. So no two nodes create a sandbox for one key.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use sandling_fleet::{is_assigned, release};
use sandling_service::{IdempotencyKey, KeyRefused, Scope, WorkspaceName};

use super::here::{Here, Opened, Opening};
use super::member::Fleet;
use super::place::{Wanted, key, refused};
use crate::app::App;
use crate::error::ApiError;

/// In a response between nodes: the sandbox was not created, and another node may create it.
pub(super) const DECLINED: HeaderName = HeaderName::from_static("sandling-create-declined");
const RELEASE_WITHIN: Duration = Duration::from_secs(3);
const RELEASE_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A create that this node was chosen for. If it refuses for lack of resources, it gives up the request's key and marks the
/// response, so that another node can be tried.
pub(super) async fn create(fleet: &Fleet, app: &App, request: Request, here: Here<'_>) -> Result<Response, ApiError> {
    let opened = match Opened::read(app, request).await? {
        Opening::Opened(opened) => opened,
        Opening::NoToken(request) => return Ok(here.answer(request).await),
    };
    let wanted = Wanted::read(app, &opened);
    let is_local = wanted.is_local();
    if let Some(snapshot) = wanted.snapshot().filter(|_| opened.principal.require(Scope::Run).is_ok()) {
        fleet.bring(app, &opened.principal.workspace, snapshot).await?;
    }
    let Some(key) = key(&opened.parts) else {
        let response = here.answer(opened.request()).await;
        return Ok(if lacks_resources(&response) { declined(response) } else { response });
    };
    let Some(turn) = fleet.creates.begin(opened.principal.workspace.as_str(), &key) else {
        return Err(KeyRefused::InProgress { object: None }.into());
    };
    let assigned = is_assigned(&fleet.membership, &turn.workspace, &turn.key).await;
    if !assigned.map_err(|error| refused(&error.to_string()))? {
        let refusal = refused("the idempotency key has another node now");
        return Ok(declined(refusal.render(&sandling_service::random::hex::<8>())));
    }
    let response = here.answer(opened.request()).await;
    let may_go = lacks_resources(&response) && !is_local && had_no_effect(app, &opened.principal.workspace, &turn.key);
    let is_given_up = may_go && turn.give_up(app).await;
    Ok(if is_given_up { declined(response) } else { response })
}

fn declined(mut response: Response) -> Response {
    response.headers_mut().insert(DECLINED, HeaderValue::from_static("yes"));
    response
}

/// Whether no create with this key has begun here, or it was undone. A refusal alone does not show that: the answer of a
/// create may be what could not be stored, or the refusal may be that of a retry whose first attempt succeeded.
fn had_no_effect(app: &App, workspace: &WorkspaceName, key: &str) -> bool {
    let key = IdempotencyKey::parse(key);
    key.is_some_and(|key| app.service.idempotency.has(workspace, &key).is_ok_and(|has| !has))
}

/// Whether a create was refused for reasons of this node.
fn lacks_resources(response: &Response) -> bool {
    [StatusCode::SERVICE_UNAVAILABLE, StatusCode::INSUFFICIENT_STORAGE].contains(&response.status())
}

/// The creates with an idempotency key that run here. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct KeyedCreates(Arc<Mutex<HashSet<(String, String)>>>);

/// While it exists, no other create with its key runs here.
struct KeyTurn {
    creates: KeyedCreates,
    workspace: String,
    key: String,
}

impl KeyedCreates {
    /// `None` if one with this key runs already.
    fn begin(&self, workspace: &str, key: &str) -> Option<KeyTurn> {
        let [workspace, key] = [workspace, key].map(str::to_owned);
        let is_first = self.lock().insert((workspace.clone(), key.clone()));
        is_first.then(|| KeyTurn { creates: self.clone(), workspace, key })
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<(String, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeyTurn {
    /// Gives up the key in the ledger. Returns false if that takes too long. The turn lasts until the outcome is known, also
    /// if the client goes away.
    async fn give_up(self, app: &App) -> bool {
        let Some(fleet) = Fleet::of(app) else { return false };
        let giving_up = tokio::spawn(async move {
            while release(&fleet.membership, &self.workspace, &self.key).await.is_err() {
                tokio::time::sleep(RELEASE_AGAIN_AFTER).await;
            }
        });
        matches!(tokio::time::timeout(RELEASE_WITHIN, giving_up).await, Ok(Ok(())))
    }
}

impl Drop for KeyTurn {
    fn drop(&mut self) {
        let key = [&mut self.workspace, &mut self.key].map(std::mem::take);
        self.creates.lock().remove(&key.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_create_at_a_time_has_a_key() {
        let creates = KeyedCreates::default();
        let turn = creates.begin("one", "key").unwrap();
        assert!(creates.begin("one", "key").is_none() && creates.begin("one", "key").is_none());
        assert!(creates.begin("one", "other").is_some() && creates.begin("two", "key").is_some());
        drop(turn);
        assert!(creates.begin("one", "key").is_some());
    }
}
