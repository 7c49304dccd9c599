//! The console of a sandbox in E2B's format, for `e2b sandbox logs`.

use axum::extract::Query;
use axum::routing::get;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use super::caller::SandboxCall;
use crate::prelude::*;
use crate::text::lossy;

/// The most lines of one answer.
const MOST_LINES: usize = 1000;

pub(super) fn router() -> Router<Arc<App>> {
    Router::new().route("/sandboxes/{id}/logs", get(first)).route("/v2/sandboxes/{id}/logs", get(second))
}

/// Where to begin, in milliseconds since 1970: `start` in the first version, `cursor` in the second.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Part {
    start: Option<i64>,
    cursor: Option<i64>,
    limit: Option<usize>,
}

async fn first(call: SandboxCall<Read>, part: Query<Part>) -> Result<Json<Value>, ApiError> {
    let entries = entries(&call, &part).await?;
    Ok(Json(json!({ "logs": entries.iter().map(line_of).collect::<Vec<_>>(), "logEntries": entries })))
}

/// An entry of the first version. E2B's command line parses the line as JSON, and needs the level and the logger.
fn line_of(entry: &Value) -> Value {
    let line = json!({ "level": entry["level"], "logger": "console", "message": entry["message"] });
    json!({ "timestamp": entry["timestamp"], "line": line.to_string() })
}

async fn second(call: SandboxCall<Read>, part: Query<Part>) -> Result<Json<Value>, ApiError> {
    Ok(Json(json!({ "logs": entries(&call, &part).await? })))
}

async fn entries(call: &SandboxCall<Read>, part: &Part) -> Result<Vec<Value>, ApiError> {
    let console = lossy(call.sandbox.console().await?);
    Ok(entries_of(&console, call.sandbox.info().created_at, part))
}

/// The lines as entries. A console has no times, so the lines are counted in milliseconds from the creation on. A client
/// that asks again for what is newer than its last line then gets only new lines.
fn entries_of(console: &str, created: Timestamp, part: &Part) -> Vec<Value> {
    let from = part.start.or(part.cursor).unwrap_or(0);
    let times = (0..).map(|number| created + SignedDuration::from_millis(number));
    let lines = times.zip(console.lines()).filter(|(time, _)| time.as_millisecond() >= from);
    let entry = |(time, line): (Timestamp, &str)| json!({ "timestamp": time.to_string(), "message": line.trim_end(), "level": "info", "fields": {} });
    lines.take(part.limit.unwrap_or(MOST_LINES).min(MOST_LINES)).map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_again_gets_the_lines_that_are_new() {
        let created = Timestamp::from_millisecond(5000).unwrap();
        let messages = |console: &str, start: Option<i64>| -> Vec<String> {
            let part = Part { start, ..Part::default() };
            let entries = entries_of(console, created, &part);
            entries.iter().map(|entry| entry["message"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(messages("a\r\nb\n", None), ["a", "b"]);
        assert_eq!(messages("a\nb\nc\n", Some(5002)), ["c"]);
    }
}
