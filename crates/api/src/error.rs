//! Errors of the API: a status, a stable code, and a message.
//!
//! The body is flat, `{"error": "...", "code": "...", "request_id": "..."}`. A handler's error reaches the outermost
//! layer as an extension of its response; that layer knows the request id and writes the body.

use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value};

/// Longer messages are cut, because parts of some come from guests.
const MAX_MESSAGE: usize = 500;
/// The code of a command that timed out.
pub(crate) const COMMAND_TIMEOUT: &str = "command_timeout";

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

/// How a dialect formats an error, if not like our own API.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) body: fn(&ApiError) -> Value,
    pub(crate) render: fn(&ApiError) -> Response,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: cut(message.into()), retry_after: None, more: Map::new(), shape: None }
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

    /// A command that timed out.
    pub(crate) fn command_timeout(seconds: f64) -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, COMMAND_TIMEOUT, format!("command timeout after {seconds}s"))
    }

    /// An internal error. The client gets the request id; the log has the cause.
    pub(crate) fn internal(error: &(dyn std::error::Error + 'static)) -> Self {
        tracing::error!(error, "a request failed with an internal error");
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

    /// Adds all fields of a value to the standard ones.
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

    /// The body of an error that an event stream carries.
    pub(crate) fn body_with_status(&self, request_id: &str) -> Value {
        let mut body = self.body(request_id);
        body["status"] = self.status.as_u16().into();
        body
    }

    /// The body in the client's format.
    pub(crate) fn written(&self, request_id: &str) -> Value {
        self.shape.map_or_else(|| self.body(request_id), |shape| (shape.body)(self))
    }

    /// The response as it is sent.
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

/// Implements the conversion of errors whose every variant holds an error that can be converted.
macro_rules! convert_sources {
    ($($error:ident { $($variant:ident),+ })+) => {
        $(impl From<$error> for ApiError {
            fn from(error: $error) -> Self {
                match error { $($error::$variant(source) => source.into()),+ }
            }
        })+
    };
}
pub(crate) use convert_sources;

/// Implements the conversion of errors that are the client's mistake, whatever the variant.
macro_rules! convert_mistakes {
    ($($error:ident),+) => {
        $(impl From<$error> for ApiError {
            fn from(error: $error) -> Self {
                Self::bad_request(error.to_string())
            }
        })+
    };
}
pub(crate) use convert_mistakes;

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

#[cfg(test)]
mod tests {
    use super::*;

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
