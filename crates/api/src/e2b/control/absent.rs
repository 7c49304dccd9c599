//! What is not there: said in one sentence, where a client would otherwise guess from a missing route.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::any;

use crate::app::App;
use crate::auth::{Caller, Read};
use crate::error::ApiError;

pub(super) fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/volumes", any(volumes))
        .route("/volumes/{*rest}", any(volumes))
        .route("/secrets", any(secrets))
        .route("/secrets/{*rest}", any(secrets))
        .route("/sandboxes/{id}/logs", any(logs))
        .route("/v2/sandboxes/{id}/logs", any(logs))
}

async fn volumes(_: Caller<Read>) -> ApiError {
    absent("volumes cannot be used through E2B's clients yet")
}

async fn secrets(_: Caller<Read>) -> ApiError {
    absent("there are no secrets here; give a sandbox what it needs as envs")
}

async fn logs(_: Caller<Read>) -> ApiError {
    absent("logs are at /v1/sandboxes/{id}/logs, in Sandling's own API")
}

fn absent(message: &str) -> ApiError {
    ApiError::new(StatusCode::NOT_IMPLEMENTED, "not_implemented", message)
}
