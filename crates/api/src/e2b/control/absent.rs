//! Routes for unsupported features. They answer with an explanation, which a missing route would not give.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::any;

use crate::app::App;
use crate::auth::{Caller, Read};
use crate::error::ApiError;

pub(super) fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/secrets", any(secrets))
        .route("/secrets/{*rest}", any(secrets))
        .route("/sandboxes/{id}/logs", any(logs))
        .route("/v2/sandboxes/{id}/logs", any(logs))
}

async fn secrets(_: Caller<Read>) -> ApiError {
    absent("secrets are bound to hosts here, which E2B's clients cannot say: use /v1/secrets, in Sandling's own API")
}

async fn logs(_: Caller<Read>) -> ApiError {
    absent("logs are at /v1/sandboxes/{id}/logs, in Sandling's own API")
}

fn absent(message: &str) -> ApiError {
    ApiError::new(StatusCode::NOT_IMPLEMENTED, "not_implemented", message)
}
