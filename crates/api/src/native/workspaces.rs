//! Workspaces, for operators.

use axum::extract::State;
use sandling_service::WorkspaceName;
use sandling_wire::{CreateWorkspace, PatchWorkspace, WorkspaceList, WorkspaceView};

use crate::delete_workspace::delete_workspace;
use crate::prelude::*;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list, create)).routes(routes!(change, delete))
}

/// List workspaces
#[utoipa::path(get, path = "/v1/workspaces", responses((status = 200, body = WorkspaceList)))]
async fn list(State(app): State<Arc<App>>, _: Caller<Operator>) -> Result<Json<WorkspaceList>, ApiError> {
    let workspaces = app.service.workspaces.list()?;
    Ok(Json(WorkspaceList { items: workspaces.into_wire() }))
}

/// Make a workspace
#[utoipa::path(
    post, path = "/v1/workspaces", request_body = CreateWorkspace, responses((status = 201, body = WorkspaceView)),
)]
async fn create(
    call: Call<Operator>,
    body: JsonBody<CreateWorkspace>,
) -> Result<(StatusCode, Json<WorkspaceView>), ApiError> {
    let name = WorkspaceName::try_from(body.value.name)?;
    Ok((StatusCode::CREATED, Json(call.app.service.workspaces.create(&name)?.into_wire())))
}

/// Change a workspace's settings
///
/// An administrator may change those of its own workspace.
#[utoipa::path(
    patch, path = "/v1/workspaces/{workspace}", request_body = PatchWorkspace,
    responses((status = 200, body = WorkspaceView)),
)]
async fn change(call: Call<Admin>, body: JsonBody<PatchWorkspace>) -> Result<Json<WorkspaceView>, ApiError> {
    let name = managed(&call.app, &call.caller, &call.item)?;
    call.app.service.workspaces.set_record_runs(&name, body.value.record_runs)?;
    Ok(Json(call.app.service.workspaces.find(&name)?.into_wire()))
}

/// Delete a workspace
///
/// Refused while it owns sandboxes. Its volumes are deleted, its tokens stop working, and its name is not given out
/// again.
#[utoipa::path(delete, path = "/v1/workspaces/{workspace}", responses((status = 204)))]
async fn delete(call: Call<Operator>) -> Result<StatusCode, ApiError> {
    let name = named(&call.app, &call.item)?;
    delete_workspace(&call.app, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A workspace that is there. For operators, who may know which ones are.
pub(crate) fn named(app: &App, name: &str) -> Result<WorkspaceName, ApiError> {
    let name = WorkspaceName::parse(name).ok_or_else(|| ApiError::not_found("workspace"))?;
    Ok(app.service.workspaces.find(&name)?.name)
}

/// A workspace that the caller manages. To an administrator, all but its own are missing.
pub(crate) fn managed(app: &App, caller: &Caller<Admin>, name: &str) -> Result<WorkspaceName, ApiError> {
    let missing = || ApiError::not_found("workspace");
    let name = WorkspaceName::parse(name).ok_or_else(missing)?;
    caller.principal.require_manage(&name).map_err(|_| missing())?;
    Ok(app.service.workspaces.find(&name)?.name)
}
