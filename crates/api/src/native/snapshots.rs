//! Snapshots: create, list, show, delete.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use sandling_engine::{SnapshotId, SnapshotInfo};
use sandling_wire::{SnapshotFilter, SnapshotList, SnapshotRequest, SnapshotView};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::app::App;
use crate::auth::{Caller, Read, Run};
use crate::convert::{IntoEngine, IntoWire};
use crate::error::ApiError;
use crate::extract::{JsonBody, Params, Parts};

const LONGEST_NAME: usize = 200;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(make)).routes(routes!(list)).routes(routes!(get, delete))
}

/// Create a snapshot of a sandbox
///
/// Saves its memory, disk and devices. The sandbox pauses for milliseconds and continues. The quota must have room for
/// all of its memory and disk; afterwards, only what was stored counts.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/snapshots", tag = "snapshots", params(("id" = String, Path)),
    request_body = Option<SnapshotRequest>, responses((status = 201, body = SnapshotView)),
)]
async fn make(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Parts(id): Parts<String>,
    body: JsonBody<SnapshotRequest>,
) -> Result<(StatusCode, Json<SnapshotView>), ApiError> {
    let sandbox = caller.sandbox(&app, &id).await?;
    let name = check_name(body.value.name)?;
    let place = app.service.sandboxes.reserve_snapshot(caller.workspace(), &sandbox)?;
    let (info, _) = app.engine.snapshot(&sandbox, name, body.value.volumes.map(IntoEngine::into_engine)).await?;
    drop(place);
    Ok((StatusCode::CREATED, Json(info.into_wire())))
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
#[utoipa::path(
    get, path = "/v1/snapshots", tag = "snapshots", params(SnapshotFilter),
    responses((status = 200, body = SnapshotList)),
)]
async fn list(
    State(app): State<Arc<App>>,
    caller: Caller<Read>,
    Params(filter): Params<SnapshotFilter>,
) -> Result<Json<SnapshotList>, ApiError> {
    let mut own = app.engine.snapshots().list(caller.workspace().as_str())?;
    own.reverse();
    if let Some(sandbox) = filter.sandbox_id.filter(|id| !id.is_empty()) {
        own.retain(|info| info.sandbox.as_str() == sandbox);
    }
    Ok(Json(SnapshotList { snapshots: own.into_iter().map(IntoWire::into_wire).collect() }))
}

/// Show a snapshot
#[utoipa::path(
    get, path = "/v1/snapshots/{id}", tag = "snapshots", params(("id" = String, Path)),
    responses((status = 200, body = SnapshotView)),
)]
async fn get(
    State(app): State<Arc<App>>,
    caller: Caller<Read>,
    Parts(id): Parts<String>,
) -> Result<Json<SnapshotView>, ApiError> {
    Ok(Json(find(&app, &caller, &id)?.into_wire()))
}

/// Delete a snapshot
///
/// Sandboxes and snapshots that need it continue. Its files are removed when nothing needs them.
#[utoipa::path(
    delete, path = "/v1/snapshots/{id}", tag = "snapshots", params(("id" = String, Path)),
    responses((status = 204)),
)]
async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Parts(id): Parts<String>,
) -> Result<StatusCode, ApiError> {
    let found = find(&app, &caller, &id)?;
    app.engine.snapshots().delete(caller.workspace().as_str(), &found.id).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) fn find<N>(app: &App, caller: &Caller<N>, id: &str) -> Result<SnapshotInfo, ApiError> {
    let id = SnapshotId::parse(id).ok_or_else(|| ApiError::not_found("snapshot"))?;
    let found = app.engine.snapshots().find(caller.workspace().as_str(), &id)?;
    found.ok_or_else(|| ApiError::not_found("snapshot"))
}
