//! Checkpoints of a sandbox: list, make, name, and rewind to one.

use sandling_wire::{CheckpointRequest, CheckpointView, RewindRequest, RewindView, TimelineView};

use crate::auth::awake;
use crate::prelude::*;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(timeline)).routes(routes!(make)).routes(routes!(name)).routes(routes!(rewind))
}

/// Where a sandbox can go back to
///
/// A sandbox that was made with `checkpoints: "every-exec"` has a checkpoint before each command, cell and run of
/// changes to its files. The oldest without a name go when there are more than are kept.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/timeline", responses((status = 200, body = TimelineView)))]
async fn timeline(call: SandboxCall<Read>) -> Result<Json<TimelineView>, ApiError> {
    Ok(Json(call.app.engine.timeline(&call.sandbox).await.into_wire()))
}

/// Make a checkpoint
///
/// Of this moment, whether or not the sandbox makes them by itself. The quota must have room for it, as for a snapshot;
/// those that a sandbox makes by itself are not refused.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/checkpoints", request_body = Option<CheckpointRequest>,
    responses((status = 201, body = CheckpointView)),
)]
async fn make(
    call: SandboxCall<Run>,
    body: JsonBody<CheckpointRequest>,
) -> Result<(StatusCode, Json<CheckpointView>), ApiError> {
    let _call = awake(&call.sandbox).await?;
    let place = call.app.service.sandboxes.reserve_snapshot(call.workspace(), &call.sandbox).await?;
    let made = call.app.engine.checkpoint(&call.sandbox, body.value.name).await?;
    drop(place);
    Ok((StatusCode::CREATED, Json((&made).into_wire())))
}

/// Name a checkpoint, or take its name away
///
/// One with a name is kept.
#[utoipa::path(
    patch, path = "/v1/sandboxes/{id}/checkpoints/{checkpoint}",
    params(("checkpoint" = String, Path, description = "A number or a name")), request_body = Option<CheckpointRequest>,
    responses((status = 200, body = CheckpointView)),
)]
async fn name(call: SandboxCall<Run>, body: JsonBody<CheckpointRequest>) -> Result<Json<CheckpointView>, ApiError> {
    let named = call.app.engine.name_checkpoint(&call.sandbox, &call.item, body.value.name).await?;
    Ok(Json((&named).into_wire()))
}

/// Put a sandbox back to a checkpoint
///
/// Its memory, disk and processes are those of that moment; its id stays. Where it was becomes a checkpoint, too, so
/// a rewind can be taken back; later checkpoints stay. Commands that are under way end without a result.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/rewind", request_body = RewindRequest,
    responses((status = 200, body = RewindView)),
)]
async fn rewind(call: SandboxCall<Run>, body: JsonBody<RewindRequest>) -> Result<Json<RewindView>, ApiError> {
    let turn = call.app.service.create_limiter.acquire(call.workspace()).await?;
    let rewound = call.app.engine.rewind(&call.sandbox, &body.value.to).await?;
    drop(turn);
    Ok(Json(RewindView {
        id: call.sandbox.id().to_string(),
        to: rewound.to.number,
        was: rewound.was,
        status: "running",
    }))
}
