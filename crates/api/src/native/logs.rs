//! The console of a sandbox.

use std::time::Duration;

use axum::http::{HeaderValue, header};
use sandling_engine::Sandbox;
use sandling_wire::Flag;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use crate::prelude::*;
use crate::sse::{self, Events, Gone};
use crate::text::{Decoder, lossy};

/// How often a followed console is read.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// A longer line is sent in pieces of this size.
const MAX_LINE: usize = 64 * 1024;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(logs))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct LogParams {
    /// Ignored: a console has one stream.
    #[serde(rename = "stream")]
    _stream: Option<StreamName>,
    /// Keep sending new lines, as events.
    follow: Option<Flag>,
    /// Only this many lines at the end.
    tail: Option<usize>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StreamName {
    Both,
    Stdout,
    Stderr,
}

/// Read a sandbox's console
///
/// The newest part as text; with `follow`, events whose data is `{"line": "..."}`. A hibernated sandbox is woken and
/// has a new console.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/logs", params(LogParams),
    responses((status = 200, content((String = "text/plain"), (String = "text/event-stream")))),
)]
async fn logs(call: SandboxCall<Read>, Params(params): Params<LogParams>) -> Result<Response, ApiError> {
    let printed = call.sandbox.console().await?;
    if params.follow.is_some_and(Flag::is_set) {
        let from = (printed.len() - last_lines(&printed, params.tail).len()) as u64;
        return Ok(sse::endless(call.app.closing(), move |events| follow(call.sandbox, from, events)));
    }
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    let text = lossy(last_lines(&printed, params.tail).to_vec());
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

/// Sends complete lines until the sandbox ends.
async fn follow(sandbox: Arc<Sandbox>, mut from: u64, events: Events) -> Result<(), Gone> {
    let (mut decoder, mut line) = (Decoder::default(), String::new());
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    loop {
        ticks.tick().await;
        let Ok((fresh, next)) = sandbox.console_from(from, MAX_LINE).await else { return Ok(()) };
        line.push_str(&decoder.push(&fresh));
        from = next;
        while let Some(end) = line.find('\n') {
            let rest = line.split_off(end + 1);
            send_line(&events, line.trim_end_matches(['\r', '\n'])).await?;
            line = rest;
        }
        if line.len() > MAX_LINE {
            send_line(&events, &std::mem::take(&mut line)).await?;
        }
    }
}

async fn send_line(events: &Events, line: &str) -> Result<(), Gone> {
    events.send_unnamed(&serde_json::json!({ "line": line })).await
}

fn last_lines(text: &[u8], count: Option<usize>) -> &[u8] {
    let Some(count) = count else { return text };
    let ends = text.strip_suffix(b"\n").unwrap_or(text);
    let start = ends
        .iter()
        .enumerate()
        .rev()
        .filter(|(_, byte)| **byte == b'\n')
        .map(|(at, _)| at + 1)
        .nth(count.saturating_sub(1));
    if count == 0 { &[] } else { &text[start.unwrap_or(0)..] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_has_so_many_lines() {
        let text = b"a\nb\nc\n";
        assert_eq!(last_lines(text, None), text);
        assert_eq!(last_lines(text, Some(0)), b"");
        assert_eq!(last_lines(text, Some(1)), b"c\n");
        assert_eq!(last_lines(text, Some(2)), b"b\nc\n");
        assert_eq!(last_lines(text, Some(9)), text);
        assert_eq!(last_lines(b"a\nb", Some(1)), b"b");
        assert_eq!(last_lines(b"", Some(3)), b"");
    }
}
