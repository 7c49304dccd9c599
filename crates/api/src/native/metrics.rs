//! Metrics of a sandbox, and of the server for Prometheus.

use axum::extract::State;
use axum::http::header;
use jiff::Timestamp;
use sandling_service::HistoryQuery;
use sandling_wire::MetricsAnswer;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::convert::metrics::sandbox_metrics;
use crate::metric_history::sandbox_history;
use crate::prelude::*;

const HOUR: u64 = 3600;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(of_sandbox)).routes(routes!(of_server))
}

/// A span of time. Without any of these parameters, a request asks for the present usage.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct HistoryParams {
    /// The first moment, as RFC 3339 or in seconds since 1970; an hour before `to` if absent.
    from: Option<String>,
    /// The last moment; now if absent.
    to: Option<String>,
    /// Seconds between points. If absent, there are at most about 720 points.
    step: Option<u64>,
}

impl HistoryParams {
    fn is_empty(&self) -> bool {
        self.from.is_none() && self.to.is_none() && self.step.is_none()
    }

    pub(crate) fn query(&self) -> Result<HistoryQuery, ApiError> {
        let to = self.to.as_deref().map(|to| seconds("to", to)).transpose()?;
        let to = to.unwrap_or_else(|| Timestamp::now().as_second().unsigned_abs() + 1);
        let from = self.from.as_deref().map(|from| seconds("from", from)).transpose()?;
        let from = from.unwrap_or_else(|| to.saturating_sub(HOUR));
        if to < from {
            return Err(ApiError::bad_request("`to` is before `from`"));
        }
        if self.step == Some(0) {
            return Err(ApiError::bad_request("`step` must be at least 1"));
        }
        Ok(HistoryQuery { from, to, step: self.step })
    }
}

fn seconds(name: &str, text: &str) -> Result<u64, ApiError> {
    let second = text.parse().ok().or_else(|| u64::try_from(text.parse::<Timestamp>().ok()?.as_second()).ok());
    second.ok_or_else(|| {
        let message = format!("`{name}` must be a time such as 2026-01-31T12:00:00Z, or seconds since 1970");
        ApiError::bad_request(message)
    })
}

/// Show the resource usage of a sandbox
///
/// With `from`, `to` or `step`, the response is its usage over time: 5 seconds apart for the last hour and a minute apart
/// for the last day. Points outlive the server and the sandbox. A request for them does not wake a hibernated sandbox.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/metrics", params(HistoryParams), responses((status = 200, body = MetricsAnswer)),
)]
async fn of_sandbox(call: Call<Read>, Params(params): Params<HistoryParams>) -> Result<Json<MetricsAnswer>, ApiError> {
    if params.is_empty() {
        let sandbox = call.caller.sandbox(&call.app, &call.item).await?;
        let usage = sandbox.usage().await?;
        return Ok(Json(MetricsAnswer::Now(sandbox_metrics(&sandbox.info(), usage))));
    }
    let found = sandbox_history(&call, &params.query()?).await?;
    Ok(Json(MetricsAnswer::History(found.into_wire())))
}

/// Metrics of the server, for Prometheus
///
/// They cover all workspaces, so the token must be an operator's.
#[utoipa::path(
    get, path = "/metrics", responses((status = 200, body = String, content_type = "application/openmetrics-text")),
)]
async fn of_server(State(app): State<Arc<App>>, _: Caller<Operator>) -> Response {
    let text = app.meter.read(&app.engine, &app.service.audit);
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response()
}
