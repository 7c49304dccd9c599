//! Timeouts, pausing and resuming.

use axum::routing::post;
use jiff::Timestamp;
use sandling_engine::{EndReason, Kept, LifetimeChange, Sandbox, State as SandboxState};
use serde::Deserialize;

use super::caller::SandboxCall;
use super::identity_files;
use super::sandboxes::{DEFAULT_TIMEOUT, kept, timeout};
use super::view::{SandboxView, end_of, is_over};
use crate::prelude::*;
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

/// Wakes a hibernated sandbox. With `memory: false` it boots from its disk, even if its memory was saved. Its timeout is
/// extended, never shortened.
async fn connect(
    call: SandboxCall<Run>,
    origin: Origin,
    body: JsonBody<Span>,
) -> Result<(StatusCode, Json<SandboxView>), ApiError> {
    let seconds = timeout(body.value.timeout)?.unwrap_or(DEFAULT_TIMEOUT);
    drop(call.sandbox.steady().await);
    let asleep = matches!(call.sandbox.info().state, SandboxState::Hibernated | SandboxState::Paused);
    match (asleep, kept(body.value.memory)) {
        (true, Kept::Everything) => call.sandbox.resume().await?,
        (true, Kept::Disk) => call.sandbox.boot().await?,
        (false, _) => {}
    }
    identity_files::write(&call.sandbox);
    extend(&call.sandbox, seconds).await?;
    let status = if asleep { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(SandboxView::new(&call.app, &call.caller.principal, &origin, &call.sandbox.info()))))
}

/// Used by clients before version 2.6.
async fn resume(
    call: SandboxCall<Run>,
    origin: Origin,
    body: JsonBody<Span>,
) -> Result<(StatusCode, Json<SandboxView>), ApiError> {
    let info = call.sandbox.info();
    if info.state == SandboxState::Running && !is_over(&info) {
        return Err(ApiError::conflict("sandbox_running", "the sandbox is running already"));
    }
    call.sandbox.resume().await?;
    identity_files::write(&call.sandbox);
    extend(&call.sandbox, timeout(body.value.timeout)?.unwrap_or(DEFAULT_TIMEOUT)).await?;
    Ok((StatusCode::CREATED, Json(SandboxView::new(&call.app, &call.caller.principal, &origin, &call.sandbox.info()))))
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

/// Sets the timeout, counted from now. It may be shorter than before; 0 ends or pauses the sandbox at once.
async fn set_timeout(call: SandboxCall<Run>, body: JsonBody<Span>) -> Result<StatusCode, ApiError> {
    let seconds = timeout(body.value.timeout)?.ok_or_else(|| ApiError::bad_request("timeout is missing"))?;
    let info = call.sandbox.info();
    if matches!(info.state, SandboxState::Hibernated | SandboxState::Paused) {
        // E2B does not find a paused sandbox here.
        let message = format!("sandbox {:?} is paused, so it has no timeout; connect to it first", info.id.compact());
        return Err(ApiError::new(StatusCode::NOT_FOUND, "sandbox_paused", message));
    }
    let sleep = info.lifetime.sleep;
    match seconds {
        0 if sleep.at_the_end => call.sandbox.hibernate_keeping(sleep.keeps).await?,
        0 => call.sandbox.end(EndReason::Ttl).await?,
        _ => set(&call.sandbox, seconds).await?,
    }
    Ok(StatusCode::NO_CONTENT)
}

async fn refresh(call: SandboxCall<Run>, body: JsonBody<Span>) -> Result<StatusCode, ApiError> {
    extend(&call.sandbox, timeout(body.value.duration)?.unwrap_or(DEFAULT_TIMEOUT)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Hibernates a sandbox: memory, disk and processes are saved, and the host's memory is freed. With `memory: false`, only
/// the disk is saved, and the sandbox boots when it is resumed.
async fn pause(call: SandboxCall<Run>, body: JsonBody<Span>) -> Result<StatusCode, ApiError> {
    if matches!(call.sandbox.info().state, SandboxState::Hibernated | SandboxState::Paused) {
        return Err(ApiError::conflict("sandbox_paused", "the sandbox is paused already"));
    }
    call.sandbox.hibernate_keeping(kept(body.value.memory)).await?;
    Ok(StatusCode::NO_CONTENT)
}
