//! `Idempotency-Key`: a retried request gets the stored answer, and its work runs only once.

use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sandling_service::{Begin, BodyHash, IdempotencyKey, Pending, StoredAnswer, WorkspaceName};
use serde::Serialize;
use serde_json::Value;

use crate::app::App;
use crate::context::RequestContext;
use crate::error::ApiError;

const HEADER: &str = "idempotency-key";

/// A request that may have an idempotency key.
pub(crate) struct IdempotentRequest<'a> {
    pub(crate) app: &'a App,
    pub(crate) context: &'a RequestContext,
    pub(crate) workspace: &'a WorkspaceName,
    pub(crate) headers: &'a HeaderMap,
    /// The method and the full path, including ids.
    pub(crate) route: &'a str,
    pub(crate) body: &'a Bytes,
}

/// An answer that can be stored.
pub(crate) struct Answer {
    status: StatusCode,
    body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Self {
        let body = serde_json::to_vec(value).expect("wire types have string keys and no failing serializer");
        Self { status, body }
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let kind = HeaderValue::from_static("application/json");
        (self.status, [(header::CONTENT_TYPE, kind)], self.body).into_response()
    }
}

/// The state of streamed work when a request with a key arrives.
pub(crate) enum Begun<T> {
    /// This request started it.
    Now(T),
    /// An earlier request started it. `refusal` is the error if its output is gone.
    Before { object: String, refusal: ApiError },
    /// An earlier request failed to start it and got this answer.
    Failed(Response),
}

/// Records which object a request created, so that a retry can name it even if the server crashes before it answers.
#[derive(Clone, Default)]
pub(crate) struct Mark(Arc<Mutex<Option<Pending>>>);

impl Mark {
    pub(crate) fn made(&self, object: &str) {
        let pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pending) = &*pending
            && let Err(error) = pending.attach_object(object)
        {
            tracing::warn!(error = &error as &dyn std::error::Error, "a created object could not be recorded");
        }
    }

    fn take(&self) -> Option<Pending> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl IdempotentRequest<'_> {
    /// Does the work, or replays the stored answer of this key.
    pub(crate) async fn answer<F>(self, work: impl FnOnce(Mark) -> F) -> Result<Response, ApiError>
    where
        F: Future<Output = Result<Answer, ApiError>>,
    {
        let mark = Mark::default();
        if let Some(key) = key(self.headers)? {
            match self.app.service.idempotency.begin(self.workspace, &key, self.route, &BodyHash::of(self.body))? {
                Begin::Done(answer) => return Ok(again(answer)),
                Begin::Fresh(pending) => *mark.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(pending),
            }
        }
        let result = work(mark.clone()).await;
        if let Some(pending) = mark.take() {
            self.settle(pending, &result);
        }
        result.map(IntoResponse::into_response)
    }

    /// Starts the work, unless an earlier request with this key did. Only the start and its object are stored.
    pub(crate) async fn begin<T, F>(self, object: &str, work: impl FnOnce() -> F) -> Result<Begun<T>, ApiError>
    where
        F: Future<Output = Result<T, ApiError>>,
    {
        let Some(key) = key(self.headers)? else { return Ok(Begun::Now(work().await?)) };
        let pending =
            match self.app.service.idempotency.begin(self.workspace, &key, self.route, &BodyHash::of(self.body)) {
                Ok(Begin::Fresh(pending)) => pending,
                Ok(Begin::Done(answer)) if answer.status == StatusCode::OK => {
                    let object = String::from_utf8_lossy(&answer.body).into_owned();
                    let message =
                        "the request with this idempotency key ran; nothing of what it printed is kept any more";
                    return Ok(Begun::Before { object, refusal: ApiError::conflict("key_answer_not_kept", message) });
                }
                Ok(Begin::Done(answer)) => return Ok(Begun::Failed(again(answer))),
                Err(refused) => {
                    let refusal = ApiError::from(refused);
                    let object = refusal.more.get("object").and_then(Value::as_str).map(str::to_owned);
                    return object.map(|object| Begun::Before { object, refusal: refusal.clone() }).ok_or(refusal);
                }
            };
        pending.attach_object(object)?;
        let begun = work().await;
        let kept = begun.as_ref().map(|_| Answer { status: StatusCode::OK, body: object.into() });
        self.settle(pending, &kept.map_err(ApiError::clone));
        begun.map(Begun::Now)
    }

    /// Keeps the answer for retries. If it cannot be kept, this request still gets it, and a retry is told that nobody
    /// knows how the first request ended.
    fn settle(&self, pending: Pending, result: &Result<Answer, ApiError>) {
        let kept = match result {
            Ok(answer) => pending.finish(&stored(answer.status, answer.body.clone())),
            Err(error) if had_no_effect(error.status) => pending.abandon(),
            Err(error) => {
                let body = error.written(self.context.id()).to_string().into_bytes();
                pending.finish(&stored(error.status, body))
            }
        };
        if let Err(error) = kept {
            tracing::warn!(error = &error as &dyn std::error::Error, "an answer could not be kept for retries");
        }
    }
}

fn stored(status: StatusCode, body: Vec<u8>) -> StoredAnswer {
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    StoredAnswer { status: status.as_u16(), headers, body }
}

/// Whether the request was refused before it had any effect, so that it may be sent again.
fn had_no_effect(status: StatusCode) -> bool {
    let busy = [StatusCode::SERVICE_UNAVAILABLE, StatusCode::INSUFFICIENT_STORAGE];
    status.is_client_error() || busy.contains(&status)
}

fn key(headers: &HeaderMap) -> Result<Option<IdempotencyKey>, ApiError> {
    let Some(value) = headers.get(HEADER) else { return Ok(None) };
    let key = value.to_str().ok().and_then(IdempotencyKey::parse);
    let message = "an Idempotency-Key has 1 to 255 printable ASCII characters";
    key.map(Some).ok_or_else(|| ApiError::bad_request(message))
}

fn again(answer: StoredAnswer) -> Response {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::OK);
    replayed(Answer { status, body: answer.body }.into_response())
}

/// Marks an answer as replayed.
pub(crate) fn replayed(mut response: Response) -> Response {
    response.headers_mut().insert("idempotency-replayed", HeaderValue::from_static("true"));
    response
}
