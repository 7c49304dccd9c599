//! Volumes stay on their node. A new one is created on the node that gets the request, and any node can get a copy of a
//! volume. The names of both are names that no node has.
//!
//! ```text
//! client ── clone, node: b ─▶ any node ─▶ b ── how large? ──▶ a, which has the volume
//!                                         reserves the space
//!                                         b ── send it ─────▶ a copies it, while its writer stands still
//!                                         b ◀─ stream ─────── a
//! ```

use std::pin::pin;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, Limited};
use sandling_engine::{VolumeError, VolumeView};
use sandling_fleet::Member;
use sandling_service::WorkspaceName;
use serde::Deserialize;

use super::find::Sought;
use super::here::{Here, Opened, Opening};
use super::member::{Fleet, unavailable, unreachable};
use crate::app::App;
use crate::auth::query_value;
use crate::error::ApiError;
use crate::piped;
use crate::refusals::no_space;

/// What a node asks the one that has a volume.
pub(super) const PATH: &str = "/fleet/volume";
/// A node that copies a volume before it sends it is asked so often whether it is still there, and has as long to say so.
const CHECK_EVERY: Duration = Duration::from_secs(30);
const LONGEST_REFUSAL: usize = 4096;

/// The new volume, or the copy.
#[derive(Deserialize)]
struct Wanted {
    name: String,
    node: Option<String>,
}

pub(super) async fn create(fleet: &Fleet, app: &App, request: Request, here: Here<'_>) -> Result<Response, ApiError> {
    let opened = match Opened::read(app, request).await? {
        Opening::Opened(opened) => opened,
        Opening::NoToken(request) => return Ok(here.answer(request).await),
    };
    // A body that cannot be read is refused below.
    if let Ok(wanted) = serde_json::from_slice::<Wanted>(&opened.body) {
        Sought::volume(opened.principal.workspace.as_str(), &wanted.name).refuse_taken(fleet, app).await?;
    }
    Ok(here.answer(opened.request()).await)
}

/// Whether a path is that of a request to copy a volume.
pub(super) fn is_clone(path: &str) -> bool {
    let name = path.strip_prefix("/v1/volumes/").and_then(|rest| rest.strip_suffix("/clone"));
    name.is_some_and(|name| !name.is_empty() && !name.contains('/'))
}

/// The node that gets the copy answers: the one that is named, or else the one that has the volume.
pub(super) async fn clone(fleet: &Fleet, app: &App, request: Request, here: Here<'_>) -> Result<Response, ApiError> {
    let opened = match Opened::read(app, request).await? {
        Opening::Opened(opened) => opened,
        Opening::NoToken(request) => return Ok(here.answer(request).await),
    };
    // A body that cannot be read is refused below.
    let wanted = serde_json::from_slice::<Wanted>(&opened.body).ok();
    let node = wanted.as_ref().and_then(|wanted| wanted.node.as_deref());
    let is_own = node == Some(fleet.membership.name());
    let other = node.filter(|_| !is_own).map(|node| fleet.other_node(node)).transpose()?;
    if let Some(wanted) = &wanted {
        Sought::volume(opened.principal.workspace.as_str(), &wanted.name).refuse_taken(fleet, app).await?;
    }
    match other {
        Some(other) => fleet.forward(app, &other, opened.request()).await,
        None if is_own => Ok(here.answer(opened.request()).await),
        None => fleet.answer_by_name(app, opened.request(), here).await,
    }
}

impl Fleet {
    /// Another node, which a request names.
    fn other_node(&self, name: &str) -> Result<Member, ApiError> {
        let members = self.membership.members();
        if let Some(member) = members.iter().find(|member| *member.name == *name) {
            self.check_knows_volume_copies(member)?;
            return Ok(member.clone());
        }
        let names: Vec<&str> = members.iter().map(|member| &*member.name).collect();
        let message = format!("the fleet has no node `{name}` now; its nodes are {}", names.join(", "));
        Err(ApiError::new(StatusCode::NOT_FOUND, "node_unknown", message))
    }

    /// Refuses a request for another node. A node of an earlier version does not know where to pass it on to.
    pub(crate) fn check_is_node(&self, name: &str) -> Result<(), ApiError> {
        let own = self.membership.name();
        if name == own {
            return Ok(());
        }
        let message = format!(
            "this is node {own}, and the copy is for node {name}; upgrade Sandling on the node that passed the request on, \
             or send it to node {name}"
        );
        Err(ApiError::conflict("node_too_old", message))
    }

    /// Copies a volume of another node to this one, for a client that may do that.
    pub(crate) async fn fetch_volume(
        &self,
        app: &App,
        workspace: &WorkspaceName,
        name: &str,
        copy: &str,
    ) -> Result<VolumeView, ApiError> {
        let unknown = || VolumeError::Unknown(name.to_owned());
        let holder = Sought::volume(workspace.as_str(), name).owner(self, app).await?.ok_or_else(unknown)?;
        self.check_knows_volume_copies(&holder)?;
        let query = serde_urlencoded::to_string([("workspace", workspace.as_str()), ("name", name)]);
        let path = format!("{PATH}?{}", query.unwrap_or_default());
        let size_mib = self.ask_size(app, &holder, &path).await?.ok_or_else(unknown)?;
        let _place = app.service.sandboxes.reserve_disk(workspace, size_mib.into()).await?;
        let incoming = app.engine.volumes().prepare_receive(workspace.as_str(), copy, name, size_mib)?;
        let response = self.ask_for_volume(app, &holder, &path, name).await?;
        let engine = app.engine.clone();
        let receive = move |stream| engine.volumes().receive(incoming, stream);
        let received = piped::incoming(response.into_body(), receive).await;
        let made = received.map_err(|_| VolumeError::CutOff)??;
        tracing::info!(volume = name, copy, node = &*holder.name, size_mib, "a volume of another node was copied");
        Ok(made)
    }

    /// `None` if the node does not have the volume.
    async fn ask_size(&self, app: &App, holder: &Member, path: &str) -> Result<Option<u32>, ApiError> {
        let asked = tokio::time::timeout(CHECK_EVERY, self.ask_for(app, holder, path)).await;
        asked.unwrap_or_else(|_| Err(unreachable(&holder.name, "it was asked for the volume")))
    }

    /// The other node copies the volume before it answers. That takes as long as it takes, but the node must be there.
    async fn ask_for_volume(&self, app: &App, holder: &Member, path: &str, name: &str) -> Result<Response, ApiError> {
        let request = Request::post(path).header("host", "fleet").body(Body::empty());
        let request = request.map_err(|error| unreachable(&holder.name, &error.to_string()))?;
        let mut asking = pin!(self.forward(app, holder, request));
        let response = loop {
            match tokio::time::timeout(CHECK_EVERY, &mut asking).await {
                Ok(response) => break response?,
                Err(_) => {
                    self.ask_size(app, holder, path).await?;
                }
            }
        };
        if response.status() == StatusCode::OK {
            return Ok(response);
        }
        let status = response.status();
        let why = Limited::new(response.into_body(), LONGEST_REFUSAL).collect().await;
        let why = why.map(|why| String::from_utf8_lossy(&why.to_bytes()).into_owned()).unwrap_or_default();
        let told = format!("node {} does not send it: {why}", holder.name);
        Err(match status {
            StatusCode::NOT_FOUND => VolumeError::Unknown(name.to_owned()).into(),
            StatusCode::CONFLICT => ApiError::conflict("volume_in_use", told),
            StatusCode::INSUFFICIENT_STORAGE => no_space(told),
            _ => unavailable(&format!("cannot copy volume `{name}`"), &told),
        })
    }
}

/// The workspace and the name of the volume that another node asks for.
fn asked(query: Option<&str>) -> (String, String) {
    let value = |name| query_value(query, name);
    (value("workspace"), value("name"))
}

/// Answers another node how large a volume is, in MiB.
pub(super) fn answer_size(app: &App, query: Option<&str>) -> Response {
    let (workspace, name) = asked(query);
    match app.engine.volumes().find(&workspace, &name) {
        Ok(Some(volume)) => Json(volume.info.size_mib).into_response(),
        Ok(None) => StatusCode::NOT_FOUND.into_response(),
        Err(error) => refusal(&error.into()),
    }
}

/// Sends another node what is on a volume now.
pub(super) async fn answer_send(app: &App, query: Option<&str>) -> Response {
    let ((workspace, name), engine) = (asked(query), app.engine.clone());
    // If the other node goes away, the copy is still ended as it should be, and then dropped.
    let copying = tokio::spawn(async move { engine.volume_moment(&workspace, &name).await });
    let moment = match copying.await.unwrap_or(Err(VolumeError::CutOff)) {
        Ok(moment) => moment,
        Err(error) => return refusal(&error.into()),
    };
    let body = piped::outgoing(move |out| moment.send(out)).await;
    body.map_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response(), IntoResponse::into_response)
}

fn refusal(error: &ApiError) -> Response {
    (error.status, error.message.clone()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_copies_of_volumes_are_clones() {
        assert!(is_clone("/v1/volumes/data/clone") && is_clone("/v1/volumes/clone/clone"));
        for other in
            ["/v1/volumes", "/v1/volumes/clone", "/v1/volumes//clone", "/v1/volumes/a/b/clone", "/volumes/a/clone"]
        {
            assert!(!is_clone(other), "{other}");
        }
    }
}
