//! Time series of a sandbox and of a workspace.

use std::collections::BTreeMap;

use axum::routing::get;
use jiff::Timestamp;
use sandling_engine::Event;
use sandling_service::{HistoryQuery, MetricPoint};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::metric_history::sandbox_history;
use crate::prelude::*;

/// The steps that clients may ask for, in seconds.
const STEPS: [(&str, u64); 4] = [("15s", 15), ("1m", 60), ("5m", 300), ("1h", 3600)];
const MOST_SECONDS: i64 = 30 * 24 * 3600;
/// The most events that an overview is computed from.
const MOST_EVENTS: u32 = 50_000;

pub(super) fn router() -> Router<Arc<App>> {
    Router::new().route("/v1/metrics/sandbox/{id}", get(of_sandbox)).route("/v1/metrics/overview", get(overview))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Span {
    from: Option<String>,
    to: Option<String>,
    step: Option<String>,
}

struct Range {
    from: Timestamp,
    to: Timestamp,
    step: u64,
    /// The step as the client wrote it.
    named: String,
}

impl Span {
    fn range(self) -> Result<Range, ApiError> {
        let time = |name: &str, text: Option<String>| {
            let text = text.filter(|text| !text.is_empty());
            let parsed = text.map(|text| text.parse::<Timestamp>()).transpose();
            parsed.map_err(|error| ApiError::bad_request(format!("{name}: {error}")))
        };
        let to = time("to", self.to)?.unwrap_or_else(Timestamp::now);
        let from = time("from", self.from)?;
        let from = from.unwrap_or_else(|| Timestamp::from_second(to.as_second() - 3600).unwrap_or_default());
        let named = self.step.unwrap_or_default();
        let wanted = if named.is_empty() { "1m" } else { &named };
        let step = STEPS.iter().find(|(name, _)| *name == wanted).map(|(_, step)| *step);
        let step = step.ok_or_else(|| ApiError::bad_request("step must be one of 15s,1m,5m,1h"))?;
        if to < from {
            return Err(ApiError::bad_request("to must be >= from"));
        }
        if to.as_second() - from.as_second() > MOST_SECONDS {
            return Err(ApiError::bad_request("range too large (max 30 days)"));
        }
        Ok(Range { from, to, step, named })
    }
}

impl Range {
    fn answer(&self, series: Value) -> Json<Value> {
        let time = |time: Timestamp| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        Json(json!({ "from": time(self.from), "to": time(self.to), "step": self.named, "series": series }))
    }
}

/// A time as PandaStack's database prints it.
fn bucket(second: i64) -> String {
    Timestamp::from_second(second).unwrap_or_default().strftime("%Y-%m-%d %H:%M:%S").to_string()
}

async fn of_sandbox(call: Call<Read>, Params(span): Params<Span>) -> Result<Json<Value>, ApiError> {
    let range = span.range()?;
    let second = |time: Timestamp| u64::try_from(time.as_second()).unwrap_or(0);
    let query = HistoryQuery { from: second(range.from), to: second(range.to) + 1, step: Some(range.step) };
    let history = sandbox_history(&call, &query).await?;
    let series = |value: fn(&MetricPoint) -> Value| -> Vec<Value> {
        history.points.iter().map(|point| json!([bucket(point.time.cast_signed()), value(point)])).collect()
    };
    Ok(range.answer(json!({
        "cpu_pct": series(|point| json!(point.cpu_percent)),
        "mem_bytes": series(|point| json!(point.memory_bytes)),
    })))
}

/// Creates come from the events of the workspace. Requests are not counted by workspace, so their series are empty.
async fn overview(call: Call<Read>, Params(span): Params<Span>) -> Result<Json<Value>, ApiError> {
    let range = span.range()?;
    let events = call.app.engine.events().newest(call.workspace().as_str(), None, MOST_EVENTS)?;
    let creates = creates(&events, &range);
    let series = |value: &dyn Fn(&[f64]) -> Value| -> Vec<Value> {
        creates.iter().map(|(second, boots)| json!([bucket(*second), value(boots)])).collect()
    };
    let none: [Value; 0] = [];
    Ok(range.answer(json!({
        "http_rps": none, "http_p50": none, "http_p95": none, "http_errors": none,
        "sb_creates": series(&|boots| json!(boots.len())),
        "boot_p50": series(&|boots| json!(quantile(boots, 0.5))),
        "boot_p95": series(&|boots| json!(quantile(boots, 0.95))),
        "boot_warm_pct": none,
    })))
}

/// How long each create took, sorted, by the step that it was in.
fn creates(events: &[Event], range: &Range) -> BTreeMap<i64, Vec<f64>> {
    let mut steps: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
    for event in events.iter().filter(|event| event.kind == "created" && (range.from..=range.to).contains(&event.time))
    {
        let step = range.step.cast_signed();
        let boot = event.detail["boot_ms"].as_f64().unwrap_or_default();
        steps.entry(event.time.as_second().div_euclid(step) * step).or_default().push(boot);
    }
    steps.values_mut().for_each(|boots| boots.sort_by(f64::total_cmp));
    steps
}

fn quantile(sorted: &[f64], part: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((part * last as f64).round() as usize).copied().unwrap_or_default()
}
