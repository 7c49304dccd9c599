//! Metrics of a sandbox, and of the server for Prometheus.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use sandling_wire::SandboxMetrics;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::app::App;
use crate::auth::{Caller, Operator, Read};
use crate::convert::metrics::sandbox_metrics;
use crate::error::ApiError;
use crate::extract::Parts;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(of_sandbox)).routes(routes!(of_server))
}

/// Show the resource usage of a sandbox
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/metrics", tag = "metrics", params(("id" = String, Path)),
    responses((status = 200, body = SandboxMetrics)),
)]
async fn of_sandbox(
    State(app): State<Arc<App>>,
    caller: Caller<Read>,
    Parts(id): Parts<String>,
) -> Result<Json<SandboxMetrics>, ApiError> {
    let sandbox = caller.sandbox(&app, &id).await?;
    let usage = sandbox.usage().await?;
    Ok(Json(sandbox_metrics(&sandbox.info(), usage)))
}

/// Metrics of the server, for Prometheus
///
/// They cover all workspaces, so the token must be an operator's.
#[utoipa::path(
    get, path = "/metrics", tag = "metrics",
    responses((status = 200, body = String, content_type = "application/openmetrics-text")),
)]
async fn of_server(State(app): State<Arc<App>>, _: Caller<Operator>) -> Response {
    let text = app.meter.read(&app.engine);
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response()
}
