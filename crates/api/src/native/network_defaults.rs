//! What sandboxes may reach that say nothing about it themselves, and what binds all of a workspace.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use sandling_wire::{NetworkDefaultView, NetworkRequest};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::templates::find;
use crate::app::App;
use crate::auth::{Admin, Caller, Read};
use crate::convert::IntoWire;
use crate::convert::network::network_default;
use crate::error::ApiError;
use crate::extract::{JsonBody, Parts};

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(of_workspace, set_of_workspace, remove_of_workspace)).routes(routes!(
        of_template,
        set_of_template,
        remove_of_template
    ))
}

/// What the workspace's sandboxes may reach
///
/// Those that say nothing about it themselves, and whose template has no default either; if it is `binding`, all of them at
/// the most.
#[utoipa::path(get, path = "/v1/network", tag = "network", responses((status = 200, body = NetworkDefaultView)))]
async fn of_workspace(State(app): State<Arc<App>>, caller: Caller<Read>) -> Result<Json<NetworkDefaultView>, ApiError> {
    Ok(Json(app.engine.network_default(caller.workspace().as_str(), None)?.into_wire()))
}

/// Set what the workspace's sandboxes may reach
///
/// At once, also for those that run and for their open connections. What is absent stays as it is; a policy that is given
/// replaces the whole one. It cannot give secrets. With `binding` it also holds for sandboxes that have a policy of their
/// own: what the workspace's does not allow is refused, and no limit is above its.
#[utoipa::path(
    put, path = "/v1/network", tag = "network", request_body = NetworkRequest,
    responses((status = 200, body = NetworkDefaultView)),
)]
async fn set_of_workspace(
    State(app): State<Arc<App>>,
    caller: Caller<Admin>,
    body: JsonBody<NetworkRequest>,
) -> Result<Json<NetworkDefaultView>, ApiError> {
    set(&app, caller.workspace().as_str(), None, body.value)
}

/// Remove the workspace's default
///
/// At once: nothing binds any more, and sandboxes that follow it reach nothing.
#[utoipa::path(delete, path = "/v1/network", tag = "network", responses((status = 204)))]
async fn remove_of_workspace(State(app): State<Arc<App>>, caller: Caller<Admin>) -> Result<StatusCode, ApiError> {
    app.engine.remove_network_default(caller.workspace().as_str(), None)?;
    Ok(StatusCode::NO_CONTENT)
}

/// What a template's sandboxes may reach
///
/// Those of this workspace that say nothing about it themselves. It comes before the workspace's default.
#[utoipa::path(
    get, path = "/v1/templates/{name}/network", tag = "network", params(("name" = String, Path)),
    responses((status = 200, body = NetworkDefaultView)),
)]
async fn of_template(
    State(app): State<Arc<App>>,
    caller: Caller<Read>,
    Parts(name): Parts<String>,
) -> Result<Json<NetworkDefaultView>, ApiError> {
    let workspace = caller.workspace().as_str();
    find(&app, workspace, &name)?;
    Ok(Json(app.engine.network_default(workspace, Some(&name))?.into_wire()))
}

/// Set what a template's sandboxes may reach
///
/// As for the workspace: at once, and what is absent stays as it is. It cannot bind.
#[utoipa::path(
    put, path = "/v1/templates/{name}/network", tag = "network", params(("name" = String, Path)),
    request_body = NetworkRequest, responses((status = 200, body = NetworkDefaultView)),
)]
async fn set_of_template(
    State(app): State<Arc<App>>,
    caller: Caller<Admin>,
    Parts(name): Parts<String>,
    body: JsonBody<NetworkRequest>,
) -> Result<Json<NetworkDefaultView>, ApiError> {
    let workspace = caller.workspace().as_str();
    find(&app, workspace, &name)?;
    set(&app, workspace, Some(&name), body.value)
}

/// Remove a template's default
///
/// At once: sandboxes that followed it follow the workspace's.
#[utoipa::path(
    delete, path = "/v1/templates/{name}/network", tag = "network", params(("name" = String, Path)),
    responses((status = 204)),
)]
async fn remove_of_template(
    State(app): State<Arc<App>>,
    caller: Caller<Admin>,
    Parts(name): Parts<String>,
) -> Result<StatusCode, ApiError> {
    let workspace = caller.workspace().as_str();
    find(&app, workspace, &name)?;
    app.engine.remove_network_default(workspace, Some(&name))?;
    Ok(StatusCode::NO_CONTENT)
}

fn set(
    app: &App,
    workspace: &str,
    template: Option<&str>,
    request: NetworkRequest,
) -> Result<Json<NetworkDefaultView>, ApiError> {
    let change = network_default(request)?;
    Ok(Json(app.engine.change_network_default(workspace, template, change)?.into_wire()))
}
