//! Time to live, pause and hibernation.

use sandling_engine::Kept;
use sandling_wire::{HibernateRequest, LifecyclePatch, LifecycleView, StatusView};

use crate::convert::sandbox::{lifecycle_view, lifetime_change};
use crate::prelude::*;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(get, patch))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(hibernate))
        .routes(routes!(wake))
}

/// Show how long a sandbox may live
#[utoipa::path(get, path = "/v1/sandboxes/{id}/lifecycle", responses((status = 200, body = LifecycleView)))]
async fn get(call: SandboxCall<Read>) -> Result<Json<LifecycleView>, ApiError> {
    Ok(Json(lifecycle_view(&call.sandbox.info().lifetime, call.sandbox.idle_for())))
}

/// Change how long a sandbox may live
#[utoipa::path(
    patch, path = "/v1/sandboxes/{id}/lifecycle", request_body = Option<LifecyclePatch>,
    responses((status = 200, body = LifecycleView)),
)]
async fn patch(call: SandboxCall<Run>, body: JsonBody<LifecyclePatch>) -> Result<Json<LifecycleView>, ApiError> {
    call.sandbox.set_lifetime(lifetime_change(body.value)?).await?;
    Ok(Json(lifecycle_view(&call.sandbox.info().lifetime, call.sandbox.idle_for())))
}

/// Stop a sandbox's virtual CPUs
///
/// Its memory stays. Idempotent.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/pause", responses((status = 204)))]
async fn pause(call: SandboxCall<Run>) -> Result<StatusCode, ApiError> {
    call.sandbox.pause().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Resume a paused sandbox
///
/// Idempotent.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/resume", responses((status = 204)))]
async fn resume(call: SandboxCall<Run>) -> Result<StatusCode, ApiError> {
    call.sandbox.resume().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Hibernate a sandbox
///
/// Saves it with its processes, and frees its memory until the next use. With `keep_memory: false`, only its disk is
/// saved: the sandbox boots when it wakes, and its processes are gone.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/hibernate", request_body = Option<HibernateRequest>,
    responses((status = 200, body = StatusView)),
)]
async fn hibernate(call: SandboxCall<Run>, body: JsonBody<HibernateRequest>) -> Result<Json<StatusView>, ApiError> {
    let kept = if body.value.keep_memory { Kept::Everything } else { Kept::Disk };
    call.sandbox.hibernate_keeping(kept).await?;
    Ok(Json(StatusView { status: "hibernated" }))
}

/// Wake a sandbox
///
/// Idempotent. Any use of a hibernated sandbox wakes it too.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/wake", responses((status = 200, body = StatusView)))]
async fn wake(call: SandboxCall<Run>) -> Result<Json<StatusView>, ApiError> {
    call.sandbox.wake().await?;
    Ok(Json(StatusView { status: "running" }))
}
