//! Time to live, pause and hibernation.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use sandling_wire::{LifecyclePatch, LifecycleView, StatusView};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::app::App;
use crate::auth::{Caller, Read, Run};
use crate::convert::sandbox::{lifecycle_view, lifetime_change};
use crate::error::ApiError;
use crate::extract::{JsonBody, Parts};

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(get, patch))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(hibernate))
        .routes(routes!(wake))
}

/// Show how long a sandbox may live
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/lifecycle", tag = "lifecycle", params(("id" = String, Path)),
    responses((status = 200, body = LifecycleView)),
)]
async fn get(
    State(app): State<Arc<App>>,
    caller: Caller<Read>,
    Parts(id): Parts<String>,
) -> Result<Json<LifecycleView>, ApiError> {
    let sandbox = caller.sandbox(&app, &id).await?;
    Ok(Json(lifecycle_view(&sandbox.info().lifetime, sandbox.idle_for())))
}

/// Change how long a sandbox may live
#[utoipa::path(
    patch, path = "/v1/sandboxes/{id}/lifecycle", tag = "lifecycle", params(("id" = String, Path)),
    request_body = Option<LifecyclePatch>,
    responses((status = 200, body = LifecycleView)),
)]
async fn patch(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Parts(id): Parts<String>,
    body: JsonBody<LifecyclePatch>,
) -> Result<Json<LifecycleView>, ApiError> {
    let sandbox = caller.sandbox(&app, &id).await?;
    sandbox.set_lifetime(lifetime_change(body.value)?).await?;
    Ok(Json(lifecycle_view(&sandbox.info().lifetime, sandbox.idle_for())))
}

/// Stop a sandbox's virtual CPUs
///
/// Its memory stays. Idempotent.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/pause", tag = "lifecycle", params(("id" = String, Path)),
    responses((status = 204)),
)]
async fn pause(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Parts(id): Parts<String>,
) -> Result<StatusCode, ApiError> {
    caller.sandbox(&app, &id).await?.pause().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Resume a paused sandbox
///
/// Idempotent.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/resume", tag = "lifecycle", params(("id" = String, Path)),
    responses((status = 204)),
)]
async fn resume(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Parts(id): Parts<String>,
) -> Result<StatusCode, ApiError> {
    caller.sandbox(&app, &id).await?.resume().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Hibernate a sandbox
///
/// Saves it with its processes, and frees its memory until the next use.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/hibernate", tag = "lifecycle", params(("id" = String, Path)),
    responses((status = 200, body = StatusView)),
)]
async fn hibernate(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Parts(id): Parts<String>,
) -> Result<Json<StatusView>, ApiError> {
    caller.sandbox(&app, &id).await?.hibernate().await?;
    Ok(Json(StatusView { status: "hibernated" }))
}

/// Wake a sandbox
///
/// Idempotent. Any use of a hibernated sandbox wakes it too.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/wake", tag = "lifecycle", params(("id" = String, Path)),
    responses((status = 200, body = StatusView)),
)]
async fn wake(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Parts(id): Parts<String>,
) -> Result<Json<StatusView>, ApiError> {
    caller.sandbox(&app, &id).await?.wake().await?;
    Ok(Json(StatusView { status: "running" }))
}
