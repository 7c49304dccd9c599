//! Errors in E2B's format. Its clients read the status, the code in the body, and some phrases.

use axum::Json;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sandling_engine::SandboxId;
use serde_json::{Value, json};

use super::origins::share;
use crate::error::{ApiError, Shape};

/// Errors of the control plane and of files: the status code and a message.
pub(super) const CONTROL: Shape = Shape { body: error_body, render: |error| share(control(error)) };
/// The shape of errors about routes that do not exist, if the request comes from one of E2B's clients.
pub(crate) fn shape_of_client(request: &Request) -> Option<Shape> {
    let path = request.uri().path();
    if path.starts_with("/process.Process/") || path.starts_with("/filesystem.Filesystem/") {
        return Some(CONNECT);
    }
    let is_theirs = ["x-api-key", "e2b-sandbox-id"].iter().any(|name| request.headers().contains_key(*name));
    is_theirs.then_some(CONTROL)
}

/// Errors of procedure calls: a Connect code, which determines the status.
pub(super) const CONNECT: Shape = Shape { body: connect_body, render: |error| share(call(error)) };
/// Errors of the interpreter: only the message.
pub(super) const PLAIN: Shape = Shape {
    body: |error| error.message.clone().into(),
    render: |error| share((error.status, error.message.clone()).into_response()),
};

// Every shape is shared with other origins, so that a page can also read errors.
fn control(error: &ApiError) -> Response {
    let mut response = (error.status, Json(error_body(error))).into_response();
    let is_tried_again = error.status.is_server_error() || error.status == StatusCode::TOO_MANY_REQUESTS;
    if is_tried_again && error.retry_after.is_none() {
        // The Python client retries a create by itself, which helps only if there is a `Retry-After`.
        response.headers_mut().insert("should-retry", HeaderValue::from_static("false"));
    }
    response
}

fn call(error: &ApiError) -> Response {
    (connect(error).1, Json(connect_body(error))).into_response()
}

fn connect_body(error: &ApiError) -> Value {
    json!({ "code": connect(error).0, "message": error.message })
}

/// The body of an error of the control plane.
fn error_body(error: &ApiError) -> Value {
    let mut body = error.more.clone();
    // The JavaScript client reads this number, the Python client reads the status.
    body.insert("code".to_owned(), error.status.as_u16().into());
    body.insert("message".to_owned(), error.message.clone().into());
    Value::Object(body)
}

/// The Connect code for an error, and its HTTP status.
pub(super) fn connect(error: &ApiError) -> (&'static str, StatusCode) {
    match (error.status.as_u16(), error.code) {
        (_, "no_such_route") => ("unimplemented", StatusCode::NOT_IMPLEMENTED),
        (_, "already_exists") => ("already_exists", StatusCode::CONFLICT),
        (400 | 415, _) => ("invalid_argument", StatusCode::BAD_REQUEST),
        (401, _) => ("unauthenticated", StatusCode::UNAUTHORIZED),
        (403, _) => ("permission_denied", StatusCode::FORBIDDEN),
        // With 404, the clients would report that the process or the file does not exist.
        (_, "sandbox_ended") => ("unavailable", StatusCode::SERVICE_UNAVAILABLE),
        (404, _) => ("not_found", StatusCode::NOT_FOUND),
        (408 | 504, _) => ("deadline_exceeded", StatusCode::GATEWAY_TIMEOUT),
        (409, _) => ("failed_precondition", StatusCode::BAD_REQUEST),
        (413 | 429 | 507, _) => ("resource_exhausted", StatusCode::TOO_MANY_REQUESTS),
        (502 | 503, _) => ("unavailable", StatusCode::SERVICE_UNAVAILABLE),
        _ => ("internal", StatusCode::INTERNAL_SERVER_ERROR),
    }
}

/// Nothing listens on the port. The clients look for this phrase.
pub(super) fn closed_port(id: &SandboxId, port: u16) -> ApiError {
    let message = "The sandbox is running but port is not open";
    let mut error = ApiError::new(StatusCode::BAD_GATEWAY, "nothing_listens", message);
    error.shape = Some(CONTROL);
    error.with("sandboxId", id.compact()).with("port", port)
}

pub(super) fn unsupported(message: &str) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, "unsupported", message)
}

/// Gives errors of the inner routes a shape, unless they have one.
pub(super) async fn shaped(shape: Shape, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    if let Some(error) = response.extensions_mut().get_mut::<ApiError>()
        && error.shape.is_none()
    {
        error.shape = Some(shape);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_number_in_the_body_is_the_status() {
        let mut error = ApiError::not_found("sandbox");
        error.shape = Some(CONTROL);
        let response = error.render("id");
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
        let bytes = axum::body::to_bytes(response.into_body(), 1000).await.unwrap();
        let body: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(body, json!({ "code": 404, "message": "sandbox not found" }));
    }

    #[test]
    fn a_definitive_refusal_is_not_to_be_sent_again() {
        let should_retry = |error: ApiError| {
            let response = ApiError { shape: Some(CONTROL), ..error }.render("id");
            response.headers().get("should-retry").map(|value| value.to_str().unwrap().to_owned())
        };
        let full = || ApiError::new(StatusCode::TOO_MANY_REQUESTS, "quota", "x");
        assert_eq!(should_retry(full()).as_deref(), Some("false"));
        assert_eq!(should_retry(full().retry_after(3)), None);
        assert_eq!(should_retry(ApiError::not_found("x")), None);
    }

    #[test]
    fn procedure_calls_have_codes_of_their_own() {
        let code = |error: &ApiError| connect(error).0;
        assert_eq!(code(&ApiError::conflict("already_exists", "x")), "already_exists");
        assert_eq!(code(&ApiError::conflict("sandbox_paused", "x")), "failed_precondition");
        assert_eq!(code(&ApiError::bad_request("x")), "invalid_argument");
        let ended = ApiError::new(StatusCode::NOT_FOUND, "sandbox_ended", "x");
        assert_eq!(code(&ended), "unavailable");
        assert_eq!(code(&ApiError::command_timeout(1.0)), "deadline_exceeded");
    }
}
