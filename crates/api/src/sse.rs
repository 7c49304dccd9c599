//! Event streams (SSE), with a keep-alive every ten seconds.
//!
//! A handler passes a task that sends events; the stream ends with the task. The task is dropped when the client
//! disconnects. An endless task is also dropped when the server drains.

use std::convert::Infallible;
use std::str::FromStr;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt};
use http_body_util::StreamBody;
use hyper::body::Frame;
use serde::Serialize;
use tokio::sync::{broadcast, mpsc};

use crate::closing::Closing;
use crate::text::ascii_json;

const PING_EVERY: Duration = Duration::from_secs(10);
/// The most events that are queued for a slow client before the sender waits.
const WAITING: usize = 16;

/// The sending end of an event stream.
pub(crate) struct Events {
    queue: mpsc::Sender<Bytes>,
}

/// The client has disconnected, or the server is shutting down.
#[derive(Debug)]
pub(crate) struct Gone;

impl Events {
    /// Sends an event. Its data is one line of ASCII.
    pub(crate) async fn send(&self, name: &str, data: &impl Serialize) -> Result<(), Gone> {
        self.raw(format!("event: {name}\ndata: {}\n\n", ascii_json(data))).await
    }

    /// Sends an event with an id, from which a disconnected client can resume.
    pub(crate) async fn send_with_id(&self, id: u64, name: &str, data: &impl Serialize) -> Result<(), Gone> {
        self.raw(format!("id: {id}\nevent: {name}\ndata: {}\n\n", ascii_json(data))).await
    }

    /// Sends data without an event name, for clients that print every line.
    pub(crate) async fn send_unnamed(&self, data: &impl Serialize) -> Result<(), Gone> {
        self.raw(format!("data: {}\n\n", ascii_json(data))).await
    }

    /// Sends text unchanged. It must not contain line breaks, which would begin another field.
    pub(crate) async fn send_text(&self, name: Option<&str>, text: &str) -> Result<(), Gone> {
        let name = name.map(|name| format!("event: {name}\n")).unwrap_or_default();
        self.raw(format!("{name}data: {}\n\n", text.replace(['\r', '\n'], " "))).await
    }

    async fn raw(&self, event: String) -> Result<(), Gone> {
        self.queue.send(event.into()).await.map_err(|_| Gone)
    }
}

/// The id of the last event that a reconnecting client has seen.
pub(crate) fn last_event_id<T: FromStr>(headers: &HeaderMap) -> Option<T> {
    headers.get("last-event-id")?.to_str().ok()?.parse().ok()
}

/// Sends stored events and then new ones, which are called `event` and have their number as id. `view` returns both the
/// number and the content, or nothing for an event that does not belong to the stream.
pub(crate) async fn follow<T: Clone, V: Serialize>(
    events: Events,
    stored: Vec<T>,
    mut live: broadcast::Receiver<T>,
    view: impl Fn(T) -> Option<(u64, V)>,
) -> Result<(), Gone> {
    let (mut stored, mut last) = (stored.into_iter(), 0);
    loop {
        let event = match stored.next() {
            Some(event) => event,
            None => match live.recv().await {
                Ok(event) => event,
                // A client that reads too slowly is disconnected. It resumes from its last id and misses no event.
                Err(_) => return Ok(()),
            },
        };
        if let Some((number, view)) = view(event).filter(|(number, _)| *number > last) {
            last = number;
            events.send_with_id(number, "event", &view).await?;
        }
    }
}

/// A stream whose task ends by itself.
pub(crate) fn finite<F>(task: impl FnOnce(Events) -> F) -> Response
where
    F: Future<Output = Result<(), Gone>> + Send + 'static,
{
    respond(std::future::pending(), task)
}

/// A stream whose task does not end by itself. It ends with the server.
pub(crate) fn endless<F>(mut closing: Closing, task: impl FnOnce(Events) -> F) -> Response
where
    F: Future<Output = Result<(), Gone>> + Send + 'static,
{
    respond(async move { closing.reached().await }, task)
}

fn respond<F>(over: impl Future<Output = ()> + Send + 'static, task: impl FnOnce(Events) -> F) -> Response
where
    F: Future<Output = Result<(), Gone>> + Send + 'static,
{
    let (queue, mut waiting) = mpsc::channel(WAITING);
    let listener = queue.clone();
    let task = task(Events { queue });
    // A separate task, so that its resources are released as soon as the client disconnects.
    tokio::spawn(async move {
        tokio::select! {
            _ = task => {}
            () = listener.closed() => {}
            () = over => {}
        }
    });
    let frames = futures_util::stream::poll_fn(move |context| waiting.poll_recv(context));
    event_stream(with_pings(frames))
}

fn event_stream(frames: impl Stream<Item = Bytes> + Send + 'static) -> Response {
    let frames = frames.map(|bytes| Ok::<_, Infallible>(Frame::data(bytes)));
    let mut response = Body::new(StreamBody::new(frames)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

fn with_pings(frames: impl Stream<Item = Bytes> + Send + 'static) -> impl Stream<Item = Bytes> + Send + 'static {
    futures_util::stream::unfold(Box::pin(frames), |mut frames| async move {
        let next = tokio::time::timeout(PING_EVERY, frames.next()).await;
        let bytes = next.unwrap_or(Some(Bytes::from_static(b": ping\n\n")))?;
        Some((bytes, frames))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn text(response: Response) -> String {
        let bytes = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_task_is_covered_by_pings() {
        let response = finite(|events| async move {
            tokio::time::sleep(Duration::from_secs(25)).await;
            events.send("exit", &serde_json::json!({ "text": "é" })).await
        });
        assert_eq!(response.headers()["content-type"], "text/event-stream; charset=utf-8");
        assert_eq!(text(response).await, ": ping\n\n: ping\n\nevent: exit\ndata: {\"text\":\"\\u00e9\"}\n\n");
    }

    #[tokio::test]
    async fn a_stream_without_end_ends_when_the_server_drains() {
        let sender = tokio::sync::watch::Sender::new(false);
        let response = endless(Closing::of(&sender), |events| async move {
            std::future::pending::<()>().await;
            events.send("never", &()).await
        });
        sender.send_replace(true);
        assert_eq!(text(response).await, "");
    }
}
