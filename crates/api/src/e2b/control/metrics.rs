//! The resource usage of sandboxes, now and over time.

use axum::routing::get;
use futures_util::future::join_all;
use jiff::Timestamp;
use sandling_engine::State as SandboxState;
use sandling_service::{HistoryQuery, MetricPoint, SeriesInfo};
use serde::Deserialize;
use serde_json::{Value, json};

use super::caller::SandboxCall;
use crate::convert::metrics::point_time;
use crate::e2b::envd::Sample;
use crate::e2b::place::parse_id;
use crate::prelude::*;

/// How many sandboxes one request may name.
const MOST_SANDBOXES: usize = 100;
/// How old a stored sample may be to count as the newest. Samples are 5 seconds apart.
const RECENT_SECONDS: u64 = 30;

pub(super) fn router() -> Router<Arc<App>> {
    Router::new().route("/sandboxes/metrics", get(of_several)).route("/sandboxes/{id}/metrics", get(metrics))
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

    /// None if the request names no span.
    fn query(&self) -> Option<HistoryQuery> {
        let second = |second: i64| u64::try_from(second).unwrap_or(0);
        let is_given = self.start.is_some() || self.end.is_some();
        is_given.then(|| HistoryQuery {
            from: self.start.map_or(0, second),
            to: self.end.map_or(u64::MAX, |end| second(end).saturating_add(1)),
            step: None,
        })
    }
}

/// Returns the stored samples of a span. If there are none, or without a span, it returns one sample that it takes now.
/// A hibernated sandbox has none.
async fn metrics(call: SandboxCall<Read>, Params(span): Params<Span>) -> Result<Json<Vec<Value>>, ApiError> {
    if let Some(query) = span.query() {
        let stored = call.app.service.metrics.of_sandbox(call.workspace(), call.sandbox.id(), &query);
        let stored = stored.map_err(|error| ApiError::internal(&error))?;
        if let Some(history) = stored.filter(|history| !history.points.is_empty()) {
            return Ok(Json(history.points.iter().map(|point| sample(&history.info, point)).collect()));
        }
    }
    if call.sandbox.info().state != SandboxState::Running || !span.includes(Timestamp::now().as_second()) {
        return Ok(Json(Vec::new()));
    }
    Ok(Json(vec![Sample::take(&call.sandbox).await?.of_sandbox()]))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Several {
    /// With commas between.
    sandbox_ids: String,
}

/// Returns the newest sample of each running sandbox that the request names.
async fn of_several(call: Call<Read>, Params(wanted): Params<Several>) -> Result<Json<Value>, ApiError> {
    let ids: Vec<&str> = wanted.sandbox_ids.split(',').filter(|id| !id.is_empty()).collect();
    if ids.len() > MOST_SANDBOXES {
        return Err(ApiError::bad_request(format!("sandbox_ids may have {MOST_SANDBOXES} ids, not {}", ids.len())));
    }
    let samples = join_all(ids.into_iter().map(|id| newest(&call, id))).await;
    let found: serde_json::Map<String, Value> = samples.into_iter().flatten().collect();
    Ok(Json(json!({ "sandboxes": found })))
}

/// The id of a running sandbox and its newest sample. A sandbox that ends meanwhile has none.
async fn newest(call: &Call<Read>, id: &str) -> Option<(String, Value)> {
    let sandbox = call.app.engine.find(call.workspace().as_str(), &parse_id(id)?).await?;
    if sandbox.info().state != SandboxState::Running {
        return None;
    }
    let from = u64::try_from(Timestamp::now().as_second()).ok()?.saturating_sub(RECENT_SECONDS);
    let recent = HistoryQuery { from, to: u64::MAX, step: None };
    let history = call.app.service.metrics.of_sandbox(call.workspace(), sandbox.id(), &recent).ok().flatten();
    let stored = history.and_then(|history| history.points.last().map(|point| sample(&history.info, point)));
    let newest = match stored {
        Some(stored) => stored,
        None => Sample::take(&sandbox).await.ok()?.of_sandbox(),
    };
    Some((sandbox.id().compact(), newest))
}

/// A stored sample. The host measured it, so its memory includes what the guest has cached.
fn sample(info: &SeriesInfo, point: &MetricPoint) -> Value {
    json!({
        "timestamp": point_time(point).to_string(),
        "timestampUnix": point.time,
        "cpuCount": info.cpus,
        "cpuUsedPct": point.cpu_percent,
        "memUsed": point.memory_bytes.min(info.memory_total_bytes),
        "memTotal": info.memory_total_bytes,
        "memCache": 0,
        "diskUsed": point.disk_bytes.min(info.disk_total_bytes),
        "diskTotal": info.disk_total_bytes,
    })
}
