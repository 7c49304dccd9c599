//! Default network policies of workspaces and templates, and binding policies.

use axum::extract::State;
use sandling_wire::{NetworkDefaultView, NetworkRequest};

use super::templates::find;
use crate::convert::network::network_default;
use crate::prelude::*;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(of_workspace, set_of_workspace, remove_of_workspace)).routes(routes!(
        of_template,
        set_of_template,
        remove_of_template
    ))
}

/// Show the workspace's network default
///
/// It applies to sandboxes without a policy of their own whose template has no default. If it is `binding`, it limits
/// all sandboxes of the workspace.
#[utoipa::path(get, path = "/v1/network", responses((status = 200, body = NetworkDefaultView)))]
async fn of_workspace(State(app): State<Arc<App>>, caller: Caller<Read>) -> Result<Json<NetworkDefaultView>, ApiError> {
    Ok(Json(app.engine.networks().default_of(caller.workspace().as_str(), None)?.into_wire()))
}

/// Set the workspace's network default
///
/// The change applies at once, also to running sandboxes and their open connections. Absent fields stay unchanged; a
/// policy replaces the old one completely. A default cannot attach secrets. With `binding`, it also limits sandboxes
/// that have their own policy.
#[utoipa::path(
    put, path = "/v1/network", request_body = NetworkRequest, responses((status = 200, body = NetworkDefaultView)),
)]
async fn set_of_workspace(
    call: Call<Admin>,
    body: JsonBody<NetworkRequest>,
) -> Result<Json<NetworkDefaultView>, ApiError> {
    set(&call.app, call.workspace().as_str(), None, body.value)
}

/// Remove the workspace's network default
///
/// Sandboxes that it applied to reach nothing from now on, and nothing is binding.
#[utoipa::path(delete, path = "/v1/network", responses((status = 204)))]
async fn remove_of_workspace(State(app): State<Arc<App>>, caller: Caller<Admin>) -> Result<StatusCode, ApiError> {
    app.engine.networks().remove_default(caller.workspace().as_str(), None)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Show a template's network default
///
/// It applies to this workspace's sandboxes of the template that have no policy of their own, before the workspace's
/// default.
#[utoipa::path(get, path = "/v1/templates/{name}/network", responses((status = 200, body = NetworkDefaultView)))]
async fn of_template(call: Call<Read>) -> Result<Json<NetworkDefaultView>, ApiError> {
    let workspace = call.workspace().as_str();
    find(&call.app, workspace, &call.item)?;
    Ok(Json(call.app.engine.networks().default_of(workspace, Some(&call.item))?.into_wire()))
}

/// Set a template's network default
///
/// The change applies at once, and absent fields stay unchanged. It cannot be binding.
#[utoipa::path(
    put, path = "/v1/templates/{name}/network", request_body = NetworkRequest,
    responses((status = 200, body = NetworkDefaultView)),
)]
async fn set_of_template(
    call: Call<Admin>,
    body: JsonBody<NetworkRequest>,
) -> Result<Json<NetworkDefaultView>, ApiError> {
    let workspace = call.workspace().as_str();
    find(&call.app, workspace, &call.item)?;
    set(&call.app, workspace, Some(&call.item), body.value)
}

/// Remove a template's network default
///
/// The workspace's default applies from now on.
#[utoipa::path(delete, path = "/v1/templates/{name}/network", responses((status = 204)))]
async fn remove_of_template(call: Call<Admin>) -> Result<StatusCode, ApiError> {
    let workspace = call.workspace().as_str();
    find(&call.app, workspace, &call.item)?;
    call.app.engine.networks().remove_default(workspace, Some(&call.item))?;
    Ok(StatusCode::NO_CONTENT)
}

fn set(
    app: &App,
    workspace: &str,
    template: Option<&str>,
    request: NetworkRequest,
) -> Result<Json<NetworkDefaultView>, ApiError> {
    let change = network_default(request)?;
    Ok(Json(app.engine.networks().change_default(workspace, template, change)?.into_wire()))
}
