//! Routes for unsupported features. They answer with an explanation, which a missing route would not give.

use axum::routing::any;

use crate::prelude::*;

pub(super) fn router() -> Router<Arc<App>> {
    Router::new().route("/secrets", any(secrets)).route("/secrets/{*rest}", any(secrets))
}

async fn secrets(_: Caller<Read>) -> ApiError {
    absent("secrets are bound to hosts here, which E2B's clients cannot say: use /v1/secrets, in Sandling's own API")
}

fn absent(message: &str) -> ApiError {
    ApiError::new(StatusCode::NOT_IMPLEMENTED, "not_implemented", message)
}
