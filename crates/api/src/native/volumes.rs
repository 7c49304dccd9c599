//! Volumes: make, list, look at, copy, delete.

use axum::extract::State;
use sandling_engine::{VolumeError, VolumeKind, VolumeView as Volume};
use sandling_service::WorkspaceName;
use sandling_wire::{CloneVolume, CopyVolume, CreateVolume, VolumeView};

use crate::convert::volume::USUAL_MB;
use crate::fleet::Fleet;
use crate::prelude::*;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(get, delete))
        .routes(routes!(clone))
        .routes(routes!(snapshot))
}

/// Make a volume
///
/// A named disk with an empty file system, which outlives sandboxes. It takes what is written to it, and counts as
/// what it may grow to.
#[utoipa::path(post, path = "/v1/volumes", request_body = CreateVolume, responses((status = 201, body = VolumeView)))]
async fn create(call: Call<Run>, body: JsonBody<CreateVolume>) -> Result<(StatusCode, Json<VolumeView>), ApiError> {
    let size_mib = body.value.size_mb.filter(|size| *size > 0).unwrap_or(USUAL_MB);
    let made = make(&call.app, call.workspace(), &body.value.name, size_mib).await?;
    Ok((StatusCode::CREATED, Json(made.into_wire())))
}

/// Makes a volume, if the workspace's quota has room for it.
async fn make(app: &App, workspace: &WorkspaceName, name: &str, mib: u32) -> Result<Volume, ApiError> {
    let place = app.service.sandboxes.reserve_disk(workspace, mib.into()).await?;
    let made = app.engine.volumes().create(workspace.as_str(), name, mib).await?;
    drop(place);
    Ok(made)
}

/// List volumes
///
/// Those of the caller's workspace, oldest first.
#[utoipa::path(get, path = "/v1/volumes", responses((status = 200, body = Vec<VolumeView>)))]
async fn list(State(app): State<Arc<App>>, caller: Caller<Read>) -> Result<Json<Vec<VolumeView>>, ApiError> {
    let own = app.engine.volumes().list(caller.workspace().as_str())?;
    Ok(Json(own.into_wire()))
}

/// Look at a volume
#[utoipa::path(get, path = "/v1/volumes/{name}", responses((status = 200, body = VolumeView)))]
async fn get(call: Call<Read>) -> Result<Json<VolumeView>, ApiError> {
    let found = call.app.engine.volumes().find(call.workspace().as_str(), &call.item)?;
    Ok(Json(found.ok_or(VolumeError::Unknown(call.item))?.into_wire()))
}

/// Delete a volume
///
/// With all that is on it. Refused while a sandbox has it.
#[utoipa::path(delete, path = "/v1/volumes/{name}", responses((status = 204)))]
async fn delete(call: Call<Run>) -> Result<StatusCode, ApiError> {
    call.app.service.sandboxes.release_volume(call.workspace(), &call.item).await?;
    let workspace = call.workspace().as_str();
    call.app.engine.volumes().delete(workspace, &call.item)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Copy a volume
///
/// Another volume that begins with what is on this one. If a sandbox writes it, that stands still for as long as it
/// takes to copy. In a fleet, `node` names the node that gets the copy. The response comes when the copy is complete.
#[utoipa::path(
    post, path = "/v1/volumes/{name}/clone", request_body = CloneVolume, responses((status = 201, body = VolumeView)),
)]
async fn clone(call: Call<Run>, body: JsonBody<CloneVolume>) -> Result<(StatusCode, Json<VolumeView>), ApiError> {
    let CloneVolume { name, node } = body.value;
    if let Some(node) = node {
        let Some(fleet) = Fleet::of(&call.app) else {
            let message = "this server is in no fleet, so it has no nodes to copy a volume to; leave `node` out";
            return Err(ApiError::conflict("no_fleet", message));
        };
        fleet.check_is_node(&node)?;
        let workspace = call.workspace();
        if call.app.engine.volumes().find(workspace.as_str(), &call.item)?.is_none() {
            let made = fleet.fetch_volume(&call.app, workspace, &call.item, &name).await?;
            return Ok((StatusCode::CREATED, Json(made.into_wire())));
        }
    }
    copy(&call.app, &call.caller, &call.item, &name, VolumeKind::Ordinary).await
}

/// Keep a moment of a volume
///
/// It is listed as a volume of the kind `snapshot`: it can be attached read-only, cloned, and never changes.
#[utoipa::path(
    post, path = "/v1/volumes/{name}/snapshots", request_body = CopyVolume,
    responses((status = 201, body = VolumeView)),
)]
async fn snapshot(call: Call<Run>, body: JsonBody<CopyVolume>) -> Result<(StatusCode, Json<VolumeView>), ApiError> {
    copy(&call.app, &call.caller, &call.item, &body.value.name, VolumeKind::Snapshot).await
}

async fn copy(
    app: &Arc<App>,
    caller: &Caller<Run>,
    name: &str,
    copy: &str,
    kind: VolumeKind,
) -> Result<(StatusCode, Json<VolumeView>), ApiError> {
    let workspace = caller.workspace();
    let found = app.engine.volumes().find(workspace.as_str(), name)?;
    let size_mib = found.ok_or_else(|| VolumeError::Unknown(name.to_owned()))?.info.size_mib;
    let place = app.service.sandboxes.reserve_disk(workspace, size_mib.into()).await?;
    let made = app.engine.copy_volume(workspace.as_str(), name, copy, kind).await?;
    drop(place);
    Ok((StatusCode::CREATED, Json(made.into_wire())))
}
