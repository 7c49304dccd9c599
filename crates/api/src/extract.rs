//! Extractors for handlers, with error messages of our own.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::{HeaderMap, Method, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body as _;
use serde::de::DeserializeOwned;

use crate::error::ApiError;

/// The largest JSON body; files have no such limit.
const MAX_JSON: usize = 4 * 1024 * 1024;
/// How long a whole JSON body may take to arrive.
const JSON_WITHIN: Duration = Duration::from_secs(30);
/// How much of a rejected body is still read.
const MAX_DISCARDED: u64 = 64 * 1024 * 1024;

/// The variable parts of a path.
#[derive(FromRequestParts)]
#[from_request(via(Path), rejection(ApiError))]
pub(crate) struct Parts<T>(pub(crate) T);

/// The query string.
#[derive(FromRequestParts)]
#[from_request(via(Query), rejection(ApiError))]
pub(crate) struct Params<T>(pub(crate) T);

/// A JSON body, with its bytes for hashing.
pub(crate) struct JsonBody<T> {
    pub(crate) value: T,
    pub(crate) bytes: Bytes,
}

impl From<PathRejection> for ApiError {
    fn from(rejection: PathRejection) -> Self {
        Self::bad_request(rejection.body_text())
    }
}

impl From<QueryRejection> for ApiError {
    fn from(rejection: QueryRejection) -> Self {
        Self::bad_request(rejection.body_text())
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let is_json = is_json(request.headers());
        let replaces = request.method() == Method::PUT;
        let bytes = read(request.into_body()).await?;
        if !bytes.is_empty() && !is_json {
            let message = "the body must be JSON, with the content type application/json";
            return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", message));
        }
        if bytes.is_empty() && replaces {
            // Other routes treat an empty body as an empty object. Here that would delete everything by mistake.
            return Err(ApiError::bad_request("the body is missing; `{}` stands for nothing set"));
        }
        // An empty body of any type counts as an object without fields.
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        if text.trim_ascii_start().first() != Some(&b'{') {
            return Err(ApiError::bad_request("the body must be a JSON object"));
        }
        let value = serde_json::from_slice(text).map_err(|error| ApiError::bad_request(describe(&error)))?;
        Ok(Self { value, bytes })
    }
}

/// Reads a small body completely.
pub(crate) async fn read(mut body: Body) -> Result<Bytes, ApiError> {
    if body.size_hint().lower() > MAX_JSON as u64 {
        discard(&mut body).await;
        return Err(too_large());
    }
    let reading = Limited::new(&mut body, MAX_JSON).collect();
    let collected = tokio::time::timeout(JSON_WITHIN, reading).await.map_err(|_| too_slow())?;
    match collected {
        Ok(all) => Ok(all.to_bytes()),
        Err(error) if error.downcast_ref::<LengthLimitError>().is_some() => {
            discard(&mut body).await;
            Err(too_large())
        }
        Err(_) => Err(ApiError::bad_request("the body ended too early")),
    }
}

/// Reads and discards a body, because most clients read the response only after they have sent everything. A client
/// that announces too large a body is answered at once.
pub(crate) async fn discard(body: &mut Body) {
    let mut left = MAX_DISCARDED;
    if body.size_hint().lower() > left {
        return;
    }
    // The response is the same whether or not the body ends.
    let _ = tokio::time::timeout(JSON_WITHIN, async {
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len) as u64);
            if left == 0 {
                return;
            }
        }
    })
    .await;
}

fn too_large() -> ApiError {
    let message = format!("the body is larger than {MAX_JSON} bytes");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
}

pub(crate) fn too_slow() -> ApiError {
    ApiError::new(StatusCode::REQUEST_TIMEOUT, "too_slow", "the body came too slowly")
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/json")
        || (kind.to_ascii_lowercase().starts_with("application/") && kind.to_ascii_lowercase().ends_with("+json"))
}

fn describe(error: &serde_json::Error) -> String {
    match error.classify() {
        serde_json::error::Category::Data => format!("the body does not fit: {error}"),
        _ => format!("the body is not JSON: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct CountBody {
        #[serde(default)]
        count: u32,
    }

    async fn take(kind: &str, body: impl Into<Body>) -> Result<u32, ApiError> {
        let request = Request::post("/").header("content-type", kind).body(body.into()).unwrap();
        JsonBody::<CountBody>::from_request(request, &()).await.map(|body| body.value.count)
    }

    #[tokio::test]
    async fn an_empty_body_of_any_type_is_an_empty_object() {
        assert_eq!(take("text/plain;charset=UTF-8", "").await.unwrap(), 0);
        assert_eq!(take("application/json; charset=utf-8", r#"{"count":3}"#).await.unwrap(), 3);
    }

    #[tokio::test]
    async fn wrong_bodies_are_refused_with_what_is_wrong() {
        assert_eq!(take("text/plain", "{}").await.unwrap_err().status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
        let unknown = take("application/json", r#"{"cuont":3}"#).await.unwrap_err();
        assert!(unknown.message.contains("`cuont`"), "{}", unknown.message);
        let negative = take("application/json", r#"{"count":-1}"#).await.unwrap_err();
        assert_eq!(negative.status, StatusCode::BAD_REQUEST);
        for other in ["[3]", "null", "3"] {
            assert!(take("application/json", other).await.unwrap_err().message.contains("object"), "{other}");
        }
        let broken = take("application/json", "{").await.unwrap_err();
        assert!(broken.message.contains("not JSON"), "{}", broken.message);
    }

    #[tokio::test]
    async fn a_body_that_is_too_large_is_refused_whether_announced_or_not() {
        let block = Bytes::from(vec![b' '; MAX_JSON + 1]);
        let unannounced = futures_util::stream::iter([Ok::<_, std::io::Error>(block.clone())]);
        for body in [Body::from(block), Body::from_stream(unannounced)] {
            assert_eq!(take("application/json", body).await.unwrap_err().status, StatusCode::PAYLOAD_TOO_LARGE);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_comes_is_not_waited_for() {
        let never = futures_util::stream::pending::<Result<Bytes, std::io::Error>>();
        let error = take("application/json", Body::from_stream(never)).await.unwrap_err();
        assert_eq!(error.status, StatusCode::REQUEST_TIMEOUT);
    }
}
