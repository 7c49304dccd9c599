//! The current resource usage of a sandbox.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use jiff::Timestamp;
use sandling_engine::State as SandboxState;
use serde::Deserialize;
use serde_json::Value;

use super::caller::sandbox;
use crate::app::App;
use crate::auth::{Caller, Read};
use crate::e2b::envd::Sample;
use crate::error::ApiError;
use crate::extract::{Params, Parts};

pub(super) fn router() -> Router<Arc<App>> {
    Router::new().route("/sandboxes/{id}/metrics", get(metrics))
}

/// The requested time range, in seconds since 1970.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Span {
    start: Option<i64>,
    end: Option<i64>,
}

impl Span {
    fn includes(&self, second: i64) -> bool {
        self.start.is_none_or(|start| start <= second) && self.end.is_none_or(|end| second <= end)
    }
}

/// Returns one sample, taken now. No history is stored, so a range in the past has no samples. Neither has a hibernated
/// sandbox.
async fn metrics(
    State(app): State<Arc<App>>,
    caller: Caller<Read>,
    Parts(id): Parts<String>,
    Params(span): Params<Span>,
) -> Result<Json<Vec<Value>>, ApiError> {
    let found = sandbox(&app, &caller, &id).await?;
    if found.info().state != SandboxState::Running || !span.includes(Timestamp::now().as_second()) {
        return Ok(Json(Vec::new()));
    }
    Ok(Json(vec![Sample::take(&found).await?.of_sandbox()]))
}
