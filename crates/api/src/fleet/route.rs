//! Which node answers a request about a sandbox, also while the sandbox moves or after it has moved.

use std::time::Duration;

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use sandling_engine::SandboxId;
use sandling_fleet::{Member, node_tag};
use tokio::time::Instant;

use super::find::Sought;
use super::here::Here;
use super::member::{Fleet, unavailable};
use super::moves::Entered;
use super::named;
use crate::app::App;
use crate::error::ApiError;

/// How long a request waits for the end of a move.
const WAIT_FOR_MOVE: Duration = Duration::from_secs(120);
/// In a request between nodes: the second node to get it did not have the sandbox either. The third one answers.
const PASSED_TWICE: HeaderName = HeaderName::from_static("sandling-passed-twice");

/// Whose request it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asker {
    Client,
    /// Another node, which knew less than this one. The request may be passed on once more.
    Node,
    /// This node has to answer, so that no request goes in circles.
    LastNode,
}

enum Place {
    /// While this is kept, the sandbox does not begin to move.
    Here(Entered),
    At(Member),
}

/// Removes the mark from a request. A client's mark means nothing.
pub(super) fn take_mark(request: &mut Request, is_from_node: bool) -> Asker {
    let is_marked = request.headers_mut().remove(PASSED_TWICE).is_some();
    match (is_from_node, is_marked) {
        (false, _) => Asker::Client,
        (true, false) => Asker::Node,
        (true, true) => Asker::LastNode,
    }
}

/// The sandbox that a request is about, by its id or by the name that a sandbox of this node has.
pub(super) fn subject(app: &App, request: Request) -> (Option<SandboxId>, Request) {
    if let Some(id) = named::sandbox(&request) {
        return (Some(id), request);
    }
    let (parts, body) = request.into_parts();
    let id = Sought::of(app, &parts).and_then(|sought| sought.sandbox_here(app));
    (id, Request::from_parts(parts, body))
}

impl Fleet {
    pub(super) async fn answer_about(
        &self,
        app: &App,
        id: &SandboxId,
        asker: Asker,
        mut request: Request,
        here: Here<'_>,
    ) -> Result<Response, ApiError> {
        match self.place_of(app, id, asker).await? {
            Place::Here(_entered) => {
                self.check_fence(app, id)?;
                let response = here.answer(request).await;
                self.forget_if_ended(app, id).await;
                Ok(response)
            }
            Place::At(node) => {
                if asker == Asker::Node {
                    request.headers_mut().insert(PASSED_TWICE, HeaderValue::from_static("yes"));
                }
                self.forward(app, &node, request).await
            }
        }
    }

    async fn place_of(&self, app: &App, id: &SandboxId, asker: Asker) -> Result<Place, ApiError> {
        let deadline = Instant::now() + WAIT_FOR_MOVE;
        loop {
            match self.gate.enter(id) {
                Ok(entered) => {
                    return Ok(match self.owner(app, id, asker)? {
                        Some(node) => Place::At(node),
                        None => Place::Here(entered),
                    });
                }
                Err(moving) => {
                    let waited = tokio::time::timeout_at(deadline, moving.over()).await;
                    waited.map_err(|_| unavailable("cannot reach the sandbox", "it is moving to another node"))?;
                }
            }
        }
    }

    /// The other node that has a sandbox. `None` if this node answers.
    fn owner(&self, app: &App, id: &SandboxId, asker: Asker) -> Result<Option<Member>, ApiError> {
        let unknown = |error: &dyn std::error::Error| unavailable("cannot find the sandbox", &error.to_string());
        if asker == Asker::LastNode || app.engine.get(id).is_some() {
            return Ok(None);
        }
        let (own, tag) = (node_tag(self.membership.name()), id.node_tag());
        let tag = match self.moves.node_of(id.as_str()) {
            Ok(Some(node)) => node_tag(&node),
            Ok(None) if asker == Asker::Node => own,
            Ok(None) => tag,
            // Its own node may know more.
            Err(_) if asker == Asker::Client && tag != own => tag,
            Err(_) if app.engine.ended(id).is_ok_and(|ended| ended.is_some()) => own,
            // It may have moved.
            Err(error) => return Err(unknown(&error)),
        };
        if tag == own {
            return Ok(None);
        }
        // Without the list of nodes, an answer that the sandbox does not exist could be wrong.
        self.membership.by_tag(tag).map_err(|error| unknown(&error))
    }
}
