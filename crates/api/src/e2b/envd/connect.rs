//! The part of the Connect protocol that E2B's clients use: streams of framed JSON messages.
//!
//! A frame is a byte of flags, four bytes of length, and JSON. A stream's error is in its last frame, and the status is
//! 200, because one of the clients misreads any other status. Nothing is compressed or buffered.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderValue, header};
use futures_util::StreamExt;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::closing::Closing;
use crate::e2b::refusal;
use crate::extract;
use crate::prelude::*;
use crate::text::ascii_json;

const LAST: u8 = 2;
const COMPRESSED: u8 = 1;
const HEAD: usize = 5;
const LARGEST: usize = 4 * 1024 * 1024;
/// The most frames that are queued for a slow client before the sender waits.
const WAITING: usize = 16;
/// The default keep-alive interval of a silent stream, in seconds.
const USUAL_PING: u64 = 90;

/// The single message of a streaming request.
pub(super) struct Framed<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Framed<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let bytes = extract::read(request.into_body()).await?;
        let mut frames = Frames::default();
        frames.push(&bytes)?;
        let message = frames.next()?.ok_or_else(|| ApiError::bad_request("the request has no message"))?;
        parse(&message).map(Self)
    }
}

pub(super) fn parse<T: DeserializeOwned>(message: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(message).map_err(|error| ApiError::bad_request(format!("the message does not fit: {error}")))
}

/// Assembles messages from chunks of bytes.
#[derive(Default)]
pub(super) struct Frames {
    partial: Vec<u8>,
    /// How many of these bytes have been taken. Removing them one message at a time would move the rest every time.
    taken: usize,
}

impl Frames {
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), ApiError> {
        self.partial.drain(..std::mem::take(&mut self.taken));
        if self.partial.len() + bytes.len() > 2 * LARGEST {
            return Err(ApiError::bad_request("the messages come faster than they can be taken"));
        }
        self.partial.extend_from_slice(bytes);
        Ok(())
    }

    /// The next complete message. A client's empty last frame is not a message.
    pub(super) fn next(&mut self) -> Result<Option<Vec<u8>>, ApiError> {
        loop {
            let left = &self.partial[self.taken..];
            let Some((head, rest)) = left.split_first_chunk::<HEAD>() else { return Ok(None) };
            let [flags, length @ ..] = *head;
            let length = u32::from_be_bytes(length) as usize;
            if length > LARGEST {
                return Err(ApiError::bad_request(format!("a message is larger than {LARGEST} bytes")));
            }
            if flags & COMPRESSED != 0 {
                return Err(ApiError::bad_request("compressed messages are not understood"));
            }
            let Some(message) = rest.get(..length) else { return Ok(None) };
            self.taken += HEAD + length;
            if flags & LAST == 0 {
                return Ok(Some(message.to_vec()));
            }
        }
    }
}

/// The messages in these pieces, up to the first error. For fuzzing.
pub(crate) fn split_frames<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
    let (mut frames, mut messages) = (Frames::default(), Vec::new());
    for piece in pieces {
        if frames.push(piece).is_err() {
            break;
        }
        while let Ok(Some(message)) = frames.next() {
            messages.push(message);
        }
    }
    messages
}

/// The messages of a client stream.
pub(super) struct Stream {
    body: Body,
    frames: Frames,
}

impl<S: Send + Sync> FromRequest<S> for Stream {
    type Rejection = Infallible;

    async fn from_request(request: Request, _: &S) -> Result<Self, Infallible> {
        Ok(Self { body: request.into_body(), frames: Frames::default() })
    }
}

impl Stream {
    pub(super) async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, ApiError> {
        loop {
            if let Some(message) = self.frames.next()? {
                return parse(&message).map(Some);
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Ok(frame)) => self.frames.push(frame.data_ref().map_or(&[][..], |bytes| bytes))?,
                Some(Err(_)) => return Err(ApiError::bad_request("the body ended too early")),
            }
        }
    }
}

/// The sending end of a stream.
#[derive(Clone)]
pub(super) struct Out(mpsc::Sender<Bytes>);

impl Out {
    /// Sends a message. If the client has disconnected, nothing is sent, and the sending task is dropped.
    pub(super) async fn send(&self, message: &Value) {
        let _ = self.0.send(frame(0, message)).await;
    }
}

fn frame(flags: u8, message: &Value) -> Bytes {
    let text = ascii_json(message);
    let mut bytes = Vec::with_capacity(HEAD + text.len());
    bytes.push(flags);
    bytes.extend_from_slice(&(text.len() as u32).to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes.into()
}

fn last(result: Result<(), ApiError>) -> Bytes {
    let message = match result {
        Ok(()) => json!({}),
        Err(error) => json!({ "error": { "code": refusal::connect(&error).0, "message": error.message } }),
    };
    frame(LAST, &message)
}

/// A stream that ends with its task and reports the task's result. The task is dropped when the client disconnects or
/// the server drains.
pub(super) fn respond<F>(mut closing: Closing, task: impl FnOnce(Out) -> F) -> Response
where
    F: Future<Output = Result<(), ApiError>> + Send + 'static,
{
    let (queue, mut waiting) = mpsc::channel(WAITING);
    let task = task(Out(queue.clone()));
    tokio::spawn(async move {
        let result = tokio::select! {
            result = task => result,
            () = queue.closed() => return,
            () = closing.reached() => {
                let message = "the server is closing; what runs goes on";
                Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "closing", message))
            }
        };
        let _ = queue.send(last(result)).await;
    });
    let frames = futures_util::stream::poll_fn(move |context| waiting.poll_recv(context));
    let mut response = Body::from_stream(frames.map(Ok::<_, Infallible>)).into_response();
    let kind = HeaderValue::from_static("application/connect+json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// Both values that a stream's handler needs, or the first error.
pub(super) fn both<A, B>(one: Result<A, ApiError>, other: Result<B, ApiError>) -> Result<(A, B), ApiError> {
    Ok((one?, other?))
}

/// An error before a stream begins. It is sent in the stream, unless the sandbox is gone: the clients detect that by
/// the status.
pub(super) fn refused(error: ApiError) -> Response {
    if error.status == StatusCode::BAD_GATEWAY { error.into_response() } else { answer(Err(error)) }
}

/// The response to a client stream: one message and the last frame.
pub(super) fn answer(result: Result<Value, ApiError>) -> Response {
    let mut bytes = Vec::new();
    let result = result.map(|message| bytes.extend_from_slice(&frame(0, &message)));
    bytes.extend_from_slice(&last(result));
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/connect+json"))], bytes).into_response()
}

/// The keep-alive interval that the client asks for.
pub(super) fn ping_every(headers: &HeaderMap) -> Duration {
    let seconds = number(headers, "keepalive-ping-interval").unwrap_or(USUAL_PING);
    Duration::from_secs(seconds.clamp(1, 3600))
}

/// The client's timeout for a call, if there is one.
pub(super) fn patience(headers: &HeaderMap) -> Option<Duration> {
    number(headers, "connect-timeout-ms").filter(|ms| *ms > 0).map(Duration::from_millis)
}

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::e2b::gone::gone;

    #[test]
    fn messages_come_whole_however_they_are_cut() {
        let bytes = [frame(0, &json!({"a": 1})), frame(0, &json!({"b": "é"})), frame(LAST, &json!({}))].concat();
        for piece in [1, 3, 100] {
            let mut frames = Frames::default();
            let mut found: Vec<Value> = Vec::new();
            for part in bytes.chunks(piece) {
                frames.push(part).unwrap();
                while let Some(message) = frames.next().unwrap() {
                    found.push(parse(&message).unwrap());
                }
            }
            assert_eq!(found, [json!({"a": 1}), json!({"b": "é"})], "{piece}");
        }
    }

    #[test]
    fn a_message_that_lies_about_its_length_is_refused() {
        let mut frames = Frames::default();
        frames.push(&[0, 0xff, 0xff, 0xff, 0xff]).unwrap();
        assert!(frames.next().is_err());
        let mut frames = Frames::default();
        frames.push(&[1, 0, 0, 0, 0]).unwrap();
        assert!(frames.next().is_err());
    }

    #[test]
    fn many_small_frames_take_time_in_proportion() {
        let mut frames = Frames::default();
        frames.push(&[LAST, 0, 0, 0, 0].repeat(LARGEST / HEAD)).unwrap();
        frames.push(&frame(0, &json!({"a": 1}))).unwrap();
        let begun = std::time::Instant::now();
        assert_eq!(frames.next().unwrap().unwrap(), b"{\"a\":1}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        frames.push(b"").unwrap();
        assert!(frames.partial.is_empty());
    }

    #[tokio::test]
    async fn an_error_travels_in_the_last_frame() {
        let closing = tokio::sync::watch::Sender::new(false);
        let response = respond(Closing::of(&closing), |out| async move {
            out.send(&json!({"event": {}})).await;
            Err(ApiError::not_found("process"))
        });
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "application/connect+json");
        let bytes = axum::body::to_bytes(response.into_body(), 1000).await.unwrap();
        let error = json!({"error": {"code": "not_found", "message": "process not found"}});
        assert_eq!(bytes, [frame(0, &json!({"event": {}})), frame(LAST, &error)].concat());
    }

    #[tokio::test]
    async fn a_refusal_before_a_stream_begins_is_in_it_too() {
        let answer = refused(ApiError::bad_request("no"));
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()["content-type"], "application/connect+json");
        let bytes = axum::body::to_bytes(answer.into_body(), 1000).await.unwrap();
        assert_eq!(bytes, frame(LAST, &json!({"error": {"code": "invalid_argument", "message": "no"}})));
        assert_eq!(refused(gone("x")).status(), StatusCode::BAD_GATEWAY);
    }
}
