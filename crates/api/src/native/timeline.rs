//! Checkpoints of a sandbox: list, make, name, and rewind to one.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use sandling_wire::{CheckpointRequest, CheckpointView, RewindRequest, RewindView, TimelineView};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::app::App;
use crate::auth::{Caller, Read, Run, awake};
use crate::convert::IntoWire;
use crate::error::ApiError;
use crate::extract::{JsonBody, Parts};

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(timeline)).routes(routes!(make)).routes(routes!(name)).routes(routes!(rewind))
}

/// Where a sandbox can go back to
///
/// A sandbox that was made with `checkpoints: "every-exec"` has a checkpoint before each command, cell and run of
/// changes to its files. The oldest without a name go when there are more than are kept.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/timeline", tag = "checkpoints", params(("id" = String, Path)),
    responses((status = 200, body = TimelineView)),
)]
async fn timeline(
    State(app): State<Arc<App>>,
    caller: Caller<Read>,
    Parts(id): Parts<String>,
) -> Result<Json<TimelineView>, ApiError> {
    let sandbox = caller.sandbox(&app, &id).await?;
    Ok(Json(app.engine.timeline(&sandbox).await.into_wire()))
}

/// Make a checkpoint
///
/// Of this moment, whether or not the sandbox makes them by itself. The quota must have room for it, as for a snapshot;
/// those that a sandbox makes by itself are not refused.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/checkpoints", tag = "checkpoints", params(("id" = String, Path)),
    request_body = Option<CheckpointRequest>, responses((status = 201, body = CheckpointView)),
)]
async fn make(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Parts(id): Parts<String>,
    body: JsonBody<CheckpointRequest>,
) -> Result<(StatusCode, Json<CheckpointView>), ApiError> {
    let sandbox = caller.sandbox(&app, &id).await?;
    awake(&sandbox).await?;
    let place = app.service.sandboxes.reserve_snapshot(caller.workspace(), &sandbox)?;
    let made = app.engine.checkpoint(&sandbox, body.value.name).await?;
    drop(place);
    Ok((StatusCode::CREATED, Json((&made).into_wire())))
}

/// Name a checkpoint, or take its name away
///
/// One with a name is kept.
#[utoipa::path(
    patch, path = "/v1/sandboxes/{id}/checkpoints/{checkpoint}", tag = "checkpoints",
    params(("id" = String, Path), ("checkpoint" = String, Path, description = "A number or a name")),
    request_body = Option<CheckpointRequest>, responses((status = 200, body = CheckpointView)),
)]
async fn name(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Parts((id, checkpoint)): Parts<(String, String)>,
    body: JsonBody<CheckpointRequest>,
) -> Result<Json<CheckpointView>, ApiError> {
    let sandbox = caller.sandbox(&app, &id).await?;
    let named = app.engine.name_checkpoint(&sandbox, &checkpoint, body.value.name).await?;
    Ok(Json((&named).into_wire()))
}

/// Put a sandbox back to a checkpoint
///
/// Its memory, disk and processes are those of that moment; its id stays. Where it was becomes a checkpoint, too, so
/// a rewind can be taken back; later checkpoints stay. Commands that are under way end without a result.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/rewind", tag = "checkpoints", params(("id" = String, Path)),
    request_body = RewindRequest, responses((status = 200, body = RewindView)),
)]
async fn rewind(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Parts(id): Parts<String>,
    body: JsonBody<RewindRequest>,
) -> Result<Json<RewindView>, ApiError> {
    let sandbox = caller.sandbox(&app, &id).await?;
    let turn = app.service.create_limiter.acquire().await?;
    let rewound = app.engine.rewind(&sandbox, &body.value.to).await?;
    drop(turn);
    Ok(Json(RewindView { id: sandbox.id().to_string(), to: rewound.to.number, was: rewound.was, status: "running" }))
}
