//! What a client is told when something did not work: a status, a stable code, and one sentence.
//!
//! The body is flat, `{"error": "...", "code": "...", "request_id": "..."}`. An error travels from a handler to the
//! outermost layer as an extension of its response; there the request id is known and the body is written. Clients
//! read meaning into words: a 5xx that speaks of a "timeout" is a command's deadline to them, and some phrases make
//! them try again, so only [`ApiError::command_timeout`] may use the word.

use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value};

/// Longer sentences are cut: parts of some come from guests.
const MAX_MESSAGE: usize = 500;

#[derive(Debug, Clone)]
pub struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) retry_after: Option<u64>,
    /// More fields of the body, such as the output a command had produced.
    pub(crate) more: Map<String, Value>,
    pub(crate) shape: Option<Shape>,
}

/// How a dialect writes an error, if not as our own API does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) body: fn(&ApiError) -> Value,
    pub(crate) render: fn(&ApiError) -> Response,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        let message = cut(message.into());
        let message = if status.is_server_error() { without_trigger_words(&message) } else { message };
        Self { status, code, message, retry_after: None, more: Map::new(), shape: None }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    pub(crate) fn not_found(what: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", format!("{what} not found"))
    }

    pub(crate) fn conflict(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, code, message)
    }

    /// A command whose time was up. The word "timeout" is what the public clients look for.
    pub(crate) fn command_timeout(seconds: f64) -> Self {
        let mut error = Self::new(StatusCode::GATEWAY_TIMEOUT, "command_timeout", "");
        error.message = command_timeout_text(seconds);
        error
    }

    /// Something of ours broke. The client learns the request id; the cause is in the log.
    pub(crate) fn internal(error: &(dyn std::error::Error + 'static)) -> Self {
        tracing::error!(error, "a request failed inside");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "something broke inside the server; its log says what")
    }

    pub(crate) fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    pub(crate) fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.more.insert(field.to_owned(), value.into());
        self
    }

    /// Adds all fields of a value, beside those that every error has.
    pub(crate) fn with_fields(mut self, value: &impl Serialize) -> Self {
        if let Ok(Value::Object(fields)) = serde_json::to_value(value) {
            self.more.extend(fields);
        }
        self
    }

    pub(crate) fn body(&self, request_id: &str) -> Value {
        let mut body = self.more.clone();
        body.insert("error".to_owned(), self.message.clone().into());
        body.insert("code".to_owned(), self.code.into());
        body.insert("request_id".to_owned(), request_id.into());
        Value::Object(body)
    }

    /// The body in the shape that the client reads.
    pub(crate) fn written(&self, request_id: &str) -> Value {
        self.shape.map_or_else(|| self.body(request_id), |shape| (shape.body)(self))
    }

    /// The answer as it goes over the wire.
    pub(crate) fn render(&self, request_id: &str) -> Response {
        let mut response = match self.shape {
            None => (self.status, axum::Json(self.body(request_id))).into_response(),
            Some(shape) => (shape.render)(self),
        };
        let mut header = |name: &'static str, value: String| {
            let value = value.parse().expect("digits and fixed words make a header");
            response.headers_mut().insert(HeaderName::from_static(name), value);
        };
        if let Some(seconds) = self.retry_after {
            header("retry-after", seconds.to_string());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            header("www-authenticate", "Bearer".to_owned());
        }
        response
    }
}

pub(crate) fn command_timeout_text(seconds: f64) -> String {
    format!("command timeout after {seconds}s")
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

fn cut(mut message: String) -> String {
    if message.len() > MAX_MESSAGE {
        let end = (0..=MAX_MESSAGE).rev().find(|end| message.is_char_boundary(*end)).unwrap_or_default();
        message.truncate(end);
        message.push('…');
    }
    message
}

/// Takes the public clients' trigger words out of a sentence that does not mean them.
fn without_trigger_words(message: &str) -> String {
    let triggers = [
        ("i/o timeout", "no answer"),
        ("deadline exceeded", "too late"),
        ("timeout", "time limit"),
        ("connect: connection refused", "connection refused"),
        ("no route to host", "no route"),
    ];
    let mut calm = message.to_owned();
    for (trigger, instead) in triggers {
        while let Some(at) = calm.to_ascii_lowercase().find(trigger) {
            calm.replace_range(at..at + trigger.len(), instead);
        }
    }
    calm
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_commands_deadline_speaks_of_a_timeout() {
        let other =
            ApiError::new(StatusCode::BAD_GATEWAY, "x", "QMP Timeout; i/o timeout; connect: connection refused");
        assert_eq!(other.message, "QMP time limit; no answer; connection refused");
        assert_eq!(ApiError::command_timeout(10.0).message, "command timeout after 10s");
        assert_eq!(ApiError::command_timeout(1.5).message, "command timeout after 1.5s");
    }

    #[test]
    fn a_guests_endless_sentence_is_cut() {
        let error = ApiError::bad_request("ä".repeat(10_000));
        assert!(error.message.len() < MAX_MESSAGE + 4);
    }

    #[tokio::test]
    async fn the_body_is_flat_and_names_the_request() {
        let response = ApiError::not_found("sandbox").with("hint", "x").render("abc");
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
        let bytes = axum::body::to_bytes(response.into_body(), 1000).await.unwrap();
        let body: Value = serde_json::from_slice(&bytes).unwrap();
        let expected = serde_json::json!({
            "error": "sandbox not found", "code": "not_found", "request_id": "abc", "hint": "x"
        });
        assert_eq!(body, expected);
    }
}
