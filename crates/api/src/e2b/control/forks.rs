//! Forks of running sandboxes.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use sandling_engine::{ForkSpec, State as SandboxState};
use serde::Deserialize;
use serde_json::{Value, json};

use super::caller::sandbox;
use super::sandboxes::{DEFAULT_TIMEOUT, timeout};
use super::view::{SandboxView, metadata_of};
use crate::app::App;
use crate::auth::{Caller, Run};
use crate::error::ApiError;
use crate::extract::{JsonBody, Parts};
use crate::preview::host::Origin;

pub(super) fn router() -> Router<Arc<App>> {
    Router::new().route("/sandboxes/{id}/fork", post(fork))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ForkRequest {
    timeout: Option<i64>,
    count: Option<u32>,
}

/// Forks a running sandbox. Either all forks are created, or none.
async fn fork(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Parts(id): Parts<String>,
    origin: Origin,
    body: JsonBody<ForkRequest>,
) -> Result<(StatusCode, Json<Vec<Value>>), ApiError> {
    app.engine.settled().await;
    let parent = sandbox(&app, &caller, &id).await?;
    let info = parent.info();
    if info.state != SandboxState::Running {
        return Err(ApiError::conflict("sandbox_paused", "the sandbox is paused; connect to it first"));
    }
    let count = body.value.count.unwrap_or(1);
    let seconds = timeout(body.value.timeout)?.unwrap_or(DEFAULT_TIMEOUT);
    let spec = ForkSpec {
        children: count as usize,
        ttl: Some(Duration::from_secs(seconds)),
        metadata: metadata_of(&info),
        labels: info.labels.clone(),
        settings: info.settings.clone(),
        ..ForkSpec::default()
    };
    let forks = app.service.sandboxes.fork(caller.workspace(), &parent, spec).await?;
    let views = forks.iter().map(|fork| SandboxView::new(&app, &origin, &fork.sandbox.info()));
    Ok((StatusCode::CREATED, Json(views.map(|view| json!({ "sandbox": view })).collect())))
}
