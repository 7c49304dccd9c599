//! HTTP requests and responses.

use std::error::Error;
use std::time::Duration;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{Method, Request, Response, StatusCode};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::rt::TokioExecutor;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::address::Server;
use super::connector::{ProxyConnector, connector};
use super::error::ClientError;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a response that is read into memory, e.g. a long file listing or audit log.
const MAX_RESPONSE: usize = 256 * 1024 * 1024;
const CLIENT_NAME: &str = concat!("sandling-cli/", env!("CARGO_PKG_VERSION"));
/// Percent-encode everything but the unreserved characters of RFC 3986.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

pub type Body = UnsyncBoxBody<Bytes, std::io::Error>;

pub struct Client {
    http: HyperClient<HttpsConnector<ProxyConnector>, Body>,
    server: Server,
    authorization: HeaderValue,
}

impl Client {
    /// A client for the running server, if there is one.
    pub fn find() -> Result<Option<Self>, ClientError> {
        Server::find()?.map(Self::new).transpose()
    }

    pub fn new(server: Server) -> Result<Self, ClientError> {
        let mut authorization =
            HeaderValue::from_str(&format!("Bearer {}", server.token)).map_err(|_| ClientError::BadToken)?;
        authorization.set_sensitive(true);
        let connector = connector(&server.address, CONNECT_TIMEOUT).map_err(ClientError::Certificates)?;
        let http = HyperClient::builder(TokioExecutor::new()).build(connector);
        Ok(Self { http, server, authorization })
    }

    pub fn server(&self) -> &Server {
        &self.server
    }

    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        read(self.get_raw(path).await?).await
    }

    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ClientError> {
        read(self.send_json(Method::POST, path, body).await?).await
    }

    pub async fn put<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ClientError> {
        read(self.send_json(Method::PUT, path, body).await?).await
    }

    pub async fn patch<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ClientError> {
        read(self.send_json(Method::PATCH, path, body).await?).await
    }

    pub async fn delete(&self, path: &str) -> Result<(), ClientError> {
        self.send(Method::DELETE, path, empty()).await
    }

    /// Deletes an object with a timeout. It is no error if the object does not exist.
    pub async fn delete_within(&self, path: &str, within: Duration) -> Result<(), ClientError> {
        match tokio::time::timeout(within, self.delete(path)).await {
            Ok(Err(error)) if error.is_missing() => Ok(()),
            Ok(done) => done,
            Err(_) => Err(ClientError::Unresponsive { seconds: within.as_secs() }),
        }
    }

    /// Sends a POST request and ignores the response body.
    pub async fn tell(&self, path: &str, body: &impl Serialize) -> Result<(), ClientError> {
        finish(self.send_json(Method::POST, path, body).await?).await
    }

    pub(super) async fn send_json(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Response<Incoming>, ClientError> {
        let bytes = serde_json::to_vec(body).expect("request types have string keys and infallible serializers");
        let mut request = self.request(method, path, whole(bytes))?;
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.answer(request).await
    }

    /// Gets a response that is not JSON.
    pub async fn text(&self, path: &str) -> Result<Bytes, ClientError> {
        collect(self.get_raw(path).await?.into_body()).await
    }

    /// The same, or `None` if it is longer than `limit`.
    pub async fn short_text(&self, path: &str, limit: usize) -> Result<Option<Bytes>, ClientError> {
        match Limited::new(self.get_raw(path).await?.into_body(), limit).collect().await {
            Ok(whole) => Ok(Some(whole.to_bytes())),
            Err(error) if error.is::<LengthLimitError>() => Ok(None),
            Err(error) => Err(ClientError::Broken(error)),
        }
    }

    /// Gets a response whose body the caller reads.
    pub async fn get_raw(&self, path: &str) -> Result<Response<Incoming>, ClientError> {
        self.answer(self.request(Method::GET, path, empty())?).await
    }

    /// Sends a raw body and ignores the response body.
    pub async fn send(&self, method: Method, path: &str, body: Body) -> Result<(), ClientError> {
        finish(self.answer(self.request(method, path, body)?).await?).await
    }

    /// Sends a raw body and returns the response.
    pub async fn send_for<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Body,
    ) -> Result<T, ClientError> {
        read(self.answer(self.request(method, path, body)?).await?).await
    }

    /// Uploads bytes with a PUT request.
    pub async fn upload(&self, path: &str, bytes: Vec<u8>) -> Result<(), ClientError> {
        self.send(Method::PUT, path, whole(bytes)).await
    }

    /// Builds a request. `path` is appended to the server's address and must be encoded.
    pub(super) fn request(&self, method: Method, path: &str, body: Body) -> Result<Request<Body>, ClientError> {
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.server.address))
            .header(AUTHORIZATION, self.authorization.clone())
            .header(USER_AGENT, CLIENT_NAME);
        request
            .body(body)
            .map_err(|error| ClientError::UnexpectedResponse(format!("{path:?} is not a valid path: {error}")))
    }

    /// Sends a request. Error statuses become errors.
    pub(super) async fn answer(&self, request: Request<Body>) -> Result<Response<Incoming>, ClientError> {
        let response = self.http.request(request).await.map_err(|error| {
            if error.is_connect() {
                return ClientError::Unreachable { address: self.server.address.clone(), why: root_cause(&error) };
            }
            ClientError::broken(error)
        })?;
        if response.status().is_success() || response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(response);
        }
        Err(refusal(response).await)
    }
}

/// The innermost cause; the outer errors only say where it happened.
pub fn root_cause(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

pub(super) fn empty() -> Body {
    whole(Vec::new())
}

fn whole(bytes: Vec<u8>) -> Body {
    Full::new(Bytes::from(bytes)).map_err(|never| match never {}).boxed_unsync()
}

/// Percent-encodes a path segment.
pub fn segment(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

/// A query string with its question mark, or an empty string without parameters.
pub fn query(pairs: &[(&str, Option<String>)]) -> String {
    let present: Vec<_> = pairs.iter().filter_map(|(name, value)| Some((*name, value.as_ref()?))).collect();
    match serde_urlencoded::to_string(present) {
        Ok(encoded) if !encoded.is_empty() => format!("?{encoded}"),
        _ => String::new(),
    }
}

/// Reads a JSON response.
async fn read<T: DeserializeOwned>(response: Response<Incoming>) -> Result<T, ClientError> {
    let bytes = collect(response.into_body()).await?;
    serde_json::from_slice(&bytes).map_err(|error| ClientError::UnexpectedResponse(error.to_string()))
}

/// Reads a response to its end, so that its connection can be reused.
async fn finish(response: Response<Incoming>) -> Result<(), ClientError> {
    collect(response.into_body()).await.map(drop)
}

async fn collect(body: Incoming) -> Result<Bytes, ClientError> {
    Ok(Limited::new(body, MAX_RESPONSE).collect().await.map_err(ClientError::Broken)?.to_bytes())
}

async fn refusal(response: Response<Incoming>) -> ClientError {
    let (status, retry_after) = (response.status(), retry_after(response.headers()));
    let body = match collect(response.into_body()).await {
        Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        Err(error) => return error,
    };
    // A proxy or another server has its own error format.
    let Some(message) = body["error"].as_str().map(str::to_owned) else {
        return ClientError::UnexpectedResponse(format!("status {status}"));
    };
    let code = body["code"].as_str().unwrap_or_default().to_owned();
    ClientError::Refused { status, code, message, retry_after, body }
}

fn retry_after(headers: &HeaderMap) -> Option<u64> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_change_the_path_or_query() {
        assert_eq!(segment("../a b?c#d%"), "..%2Fa%20b%3Fc%23d%25");
        assert_eq!(query(&[("path", Some("/ü&x=1".to_owned())), ("mode", None)]), "?path=%2F%C3%BC%26x%3D1");
        assert_eq!(query(&[("a", None)]), "");
    }
}
