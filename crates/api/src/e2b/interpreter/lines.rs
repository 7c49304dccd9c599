//! A run's response: one JSON object per line, streamed. There are no blank lines and only ASCII characters, because
//! the clients decode each network chunk separately.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::closing::Closing;
use crate::text::ascii_json;

const WAITING: usize = 16;
const PING_EVERY: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(super) struct Lines(mpsc::Sender<Result<Bytes, BrokenOff>>);

/// The response ends without its last part, so that the client notices.
#[derive(Debug, thiserror::Error)]
#[error("the sandbox was lost")]
pub(super) struct BrokenOff;

impl Lines {
    pub(super) async fn send(&self, line: &Value) {
        // The client may have disconnected; `gone` reports that.
        let _ = self.0.send(Ok((ascii_json(line) + "\n").into())).await;
    }

    pub(super) async fn output(&self, kind: &str, text: String) {
        if !text.is_empty() {
            let timestamp = jiff::Timestamp::now().to_string();
            self.send(&json!({ "type": kind, "text": text, "timestamp": timestamp })).await;
        }
    }

    /// Tells which run of its context this is.
    pub(super) async fn number(&self, number: u64) {
        self.send(&json!({ "type": "number_of_executions", "execution_count": number })).await;
    }

    pub(super) async fn error(&self, name: &str, value: &str, traceback: &str) {
        self.send(&json!({ "type": "error", "name": name, "value": value, "traceback": traceback })).await;
    }

    /// Closes the connection in the middle of the response. The clients then ask whether the sandbox still runs, and raise
    /// an error that says that it does not. A line with an error would look like code that failed.
    pub(super) async fn break_off(&self) {
        let _ = self.0.send(Err(BrokenOff)).await;
    }

    /// Waits until the client disconnects.
    pub(super) async fn gone(&self) {
        self.0.closed().await;
    }
}

/// A response that ends with its task. The task continues after the client disconnects, and ends with the server.
pub(super) fn respond<F>(mut closing: Closing, task: impl FnOnce(Lines) -> F) -> Response
where
    F: Future<Output = ()> + Send + 'static,
{
    let (queue, mut waiting) = mpsc::channel(WAITING);
    let task = task(Lines(queue));
    tokio::spawn(async move {
        tokio::select! {
            () = task => {}
            () = closing.reached() => {}
        }
    });
    let lines = futures_util::stream::poll_fn(move |context| waiting.poll_recv(context));
    let lines = futures_util::stream::unfold(Box::pin(lines), |mut lines| async move {
        let next = tokio::time::timeout(PING_EVERY, lines.next()).await;
        let line = next.unwrap_or(Some(Ok(Bytes::from_static(b"{\"type\":\"keepalive\"}\n"))))?;
        Some((line, lines))
    });
    let kind = HeaderValue::from_static("application/x-ndjson");
    ([(header::CONTENT_TYPE, kind)], Body::from_stream(lines)).into_response()
}
