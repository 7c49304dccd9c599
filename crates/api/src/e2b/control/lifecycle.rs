//! Timeouts, pausing and resuming.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use jiff::Timestamp;
use sandling_engine::{LifetimeChange, Sandbox, State as SandboxState};
use serde::Deserialize;

use super::caller::sandbox;
use super::sandboxes::{DEFAULT_TIMEOUT, timeout};
use super::view::{SandboxView, end_of};
use crate::app::App;
use crate::auth::{Caller, Run};
use crate::e2b::refusal::unsupported;
use crate::error::ApiError;
use crate::extract::{JsonBody, Parts};
use crate::preview::host::Origin;

pub(super) fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/sandboxes/{id}/connect", post(connect))
        .route("/v2/sandboxes/{id}/connect", post(connect))
        .route("/sandboxes/{id}/resume", post(resume))
        .route("/sandboxes/{id}/timeout", post(set_timeout))
        .route("/sandboxes/{id}/refreshes", post(refresh))
        .route("/sandboxes/{id}/pause", post(pause))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Span {
    timeout: Option<i64>,
    duration: Option<i64>,
    memory: Option<bool>,
}

/// Wakes a hibernated sandbox. Its timeout is extended, never shortened.
async fn connect(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Parts(id): Parts<String>,
    origin: Origin,
    body: JsonBody<Span>,
) -> Result<(StatusCode, Json<SandboxView>), ApiError> {
    if body.value.memory == Some(false) {
        return Err(unsupported("a sandbox that wakes has its memory; it cannot be booted anew instead"));
    }
    let found = sandbox(&app, &caller, &id).await?;
    let seconds = timeout(body.value.timeout)?.unwrap_or(DEFAULT_TIMEOUT);
    let asleep = matches!(found.info().state, SandboxState::Hibernated | SandboxState::Paused);
    if asleep {
        found.resume().await?;
    }
    extend(&found, seconds).await?;
    let status = if asleep { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(SandboxView::new(&app, &origin, &found.info()))))
}

/// Used by clients before version 2.6.
async fn resume(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Parts(id): Parts<String>,
    origin: Origin,
    body: JsonBody<Span>,
) -> Result<(StatusCode, Json<SandboxView>), ApiError> {
    let found = sandbox(&app, &caller, &id).await?;
    if found.info().state == SandboxState::Running {
        return Err(ApiError::conflict("sandbox_running", "the sandbox is running already"));
    }
    found.resume().await?;
    extend(&found, timeout(body.value.timeout)?.unwrap_or(DEFAULT_TIMEOUT)).await?;
    Ok((StatusCode::CREATED, Json(SandboxView::new(&app, &origin, &found.info()))))
}

async fn extend(sandbox: &Sandbox, seconds: u64) -> Result<(), ApiError> {
    let lifetime = sandbox.info().lifetime;
    let left = end_of(&lifetime).duration_since(Timestamp::now()).as_secs();
    if lifetime.persistent || u64::try_from(left).is_ok_and(|left| left >= seconds) {
        return Ok(());
    }
    set(sandbox, seconds).await
}

async fn set(sandbox: &Sandbox, seconds: u64) -> Result<(), ApiError> {
    let change = LifetimeChange { ttl_seconds: Some(Some(seconds)), ..LifetimeChange::default() };
    Ok(sandbox.set_lifetime(change).await?)
}

/// Sets the timeout, counted from now. It may be shorter than before.
async fn set_timeout(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Parts(id): Parts<String>,
    body: JsonBody<Span>,
) -> Result<StatusCode, ApiError> {
    let found = sandbox(&app, &caller, &id).await?;
    let seconds = timeout(body.value.timeout)?.ok_or_else(|| ApiError::bad_request("timeout is missing"))?;
    set(&found, seconds).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn refresh(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Parts(id): Parts<String>,
    body: JsonBody<Span>,
) -> Result<StatusCode, ApiError> {
    let found = sandbox(&app, &caller, &id).await?;
    extend(&found, timeout(body.value.duration)?.unwrap_or(DEFAULT_TIMEOUT)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Hibernates a sandbox: memory, disk and processes are saved, and the host's memory is freed.
async fn pause(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Parts(id): Parts<String>,
    body: JsonBody<Span>,
) -> Result<StatusCode, ApiError> {
    let found = sandbox(&app, &caller, &id).await?;
    if body.value.memory == Some(false) {
        return Err(unsupported("a pause keeps memory here; leave `memory: false` out"));
    }
    if matches!(found.info().state, SandboxState::Hibernated | SandboxState::Paused) {
        return Err(ApiError::conflict("sandbox_paused", "the sandbox is paused already"));
    }
    found.hibernate().await?;
    Ok(StatusCode::NO_CONTENT)
}
