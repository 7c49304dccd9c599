//! What a sandbox uses at this moment.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use sandling_engine::State as SandboxState;
use serde_json::Value;

use super::caller::sandbox;
use crate::app::App;
use crate::auth::{Caller, Read};
use crate::e2b::envd::Sample;
use crate::error::ApiError;
use crate::extract::Parts;

pub(super) fn router() -> Router<Arc<App>> {
    Router::new().route("/sandboxes/{id}/metrics", get(metrics))
}

/// One figure, of now: no history is kept. A sandbox that sleeps uses nothing, and has none.
async fn metrics(
    State(app): State<Arc<App>>,
    caller: Caller<Read>,
    Parts(id): Parts<String>,
) -> Result<Json<Vec<Value>>, ApiError> {
    let found = sandbox(&app, &caller, &id).await?;
    if found.info().state != SandboxState::Running {
        return Ok(Json(Vec::new()));
    }
    Ok(Json(vec![Sample::take(&found).await?.of_sandbox()]))
}
