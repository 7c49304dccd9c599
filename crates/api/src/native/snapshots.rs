//! Snapshots: create, list, show, delete.

use sandling_engine::{Kept, SnapshotInfo, SnapshotSpec};
use sandling_wire::{Dialect, SnapshotFilter, SnapshotList, SnapshotRequest, SnapshotView};

use crate::durability::{self, snapshot_view};
use crate::prelude::*;
use crate::snapshots;

const LONGEST_NAME: usize = 200;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(make)).routes(routes!(list)).routes(routes!(get, delete))
}

/// Create a snapshot of a sandbox
///
/// Saves its memory, disk and devices. The sandbox pauses for milliseconds and continues. With `keep_memory: false`, only
/// its disk is saved, and sandboxes created from the snapshot boot. In a fleet with a store, the snapshot is uploaded
/// afterwards; with `durable: true`, the response waits for that. The quota must have room for all of its memory and
/// disk; afterwards, only what was stored counts.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/snapshots", request_body = Option<SnapshotRequest>,
    responses((status = 201, body = SnapshotView)),
)]
async fn make(
    call: SandboxCall<Run>,
    body: JsonBody<SnapshotRequest>,
) -> Result<(StatusCode, Json<SnapshotView>), ApiError> {
    let name = check_name(body.value.name)?;
    let is_durable = body.value.durable == Some(true);
    if is_durable && body.value.keep_memory == Some(false) {
        return Err(ApiError::bad_request("a snapshot without memory cannot be durable; leave out one of the two"));
    }
    if is_durable {
        durability::require_store(&call.app)?;
    }
    if let Some(name) = name.as_deref().filter(|_| call.caller.dialect == Dialect::Native) {
        snapshots::check_free(&call.app, call.workspace(), name)?;
    }
    let place = call.app.service.sandboxes.reserve_snapshot(call.workspace(), &call.sandbox).await?;
    let kept = if body.value.keep_memory == Some(false) { Kept::Disk } else { Kept::Everything };
    let spec = SnapshotSpec { name, volumes: body.value.volumes.map(IntoEngine::into_engine), kept };
    let (info, _) = call.app.engine.snapshot(&call.sandbox, spec).await?;
    drop(place);
    if is_durable {
        durability::wait_until_durable(&call.app, &info).await?;
    }
    Ok((StatusCode::CREATED, Json(snapshot_view(&call.app, info))))
}

/// A name or a description for people; none at all is none.
pub(crate) fn check_name(name: Option<String>) -> Result<Option<String>, ApiError> {
    let name = name.filter(|name| !name.is_empty());
    if name.as_ref().is_some_and(|name| name.len() > LONGEST_NAME || name.contains(char::is_control)) {
        return Err(ApiError::bad_request(format!(
            "a name has at most {LONGEST_NAME} bytes and no control characters"
        )));
    }
    Ok(name)
}

/// List snapshots, newest first
#[utoipa::path(get, path = "/v1/snapshots", params(SnapshotFilter), responses((status = 200, body = SnapshotList)))]
async fn list(call: Call<Read>, Params(filter): Params<SnapshotFilter>) -> Result<Json<SnapshotList>, ApiError> {
    let mut own = call.app.engine.snapshots().list(call.workspace().as_str())?;
    own.reverse();
    if let Some(sandbox) = filter.sandbox_id.filter(|id| !id.is_empty()) {
        own.retain(|info| info.sandbox.as_str() == sandbox);
    }
    let snapshots = own.into_iter().map(|info| snapshot_view(&call.app, info)).collect();
    Ok(Json(SnapshotList { snapshots }))
}

/// Show a snapshot
#[utoipa::path(get, path = "/v1/snapshots/{id}", responses((status = 200, body = SnapshotView)))]
async fn get(call: Call<Read>) -> Result<Json<SnapshotView>, ApiError> {
    Ok(Json(snapshot_view(&call.app, find(&call.app, &call.caller, &call.item)?)))
}

/// Delete a snapshot
///
/// Sandboxes and snapshots that need it continue. Its files are removed when nothing needs them.
#[utoipa::path(delete, path = "/v1/snapshots/{id}", responses((status = 204)))]
async fn delete(call: Call<Run>) -> Result<StatusCode, ApiError> {
    let id = snapshots::resolve(&call.app, call.workspace(), &call.item)?;
    call.app.engine.snapshots().delete(call.workspace().as_str(), &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) fn find<N>(app: &App, caller: &Caller<N>, id: &str) -> Result<SnapshotInfo, ApiError> {
    let id = snapshots::resolve(app, caller.workspace(), id)?;
    let found = app.engine.snapshots().find(caller.workspace().as_str(), &id)?;
    found.ok_or_else(|| ApiError::not_found("snapshot"))
}
