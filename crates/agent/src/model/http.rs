//! Sends one request to a model's server, and reads the answer as a whole or as a stream of events.

use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use hyper::{Method, Request, Response, Uri};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use sandling_client::{Event, EventReader, ProxyConnector, connector, root_cause};
use serde_json::Value;

use super::error::ModelError;

const CONNECT_WITHIN: Duration = Duration::from_secs(20);
/// A server that sends nothing for this long in the middle of an answer counts as gone.
const SILENCE: Duration = Duration::from_secs(180);
const MAX_ANSWER: usize = 64 * 1024 * 1024;
/// How much of an error that is not JSON is shown.
const SHOWN: usize = 300;

pub struct Http {
    client: Client<HttpsConnector<ProxyConnector>, Full<Bytes>>,
}

pub enum Answer {
    Whole(Value),
    Events(EventStream),
}

pub struct EventStream {
    body: Incoming,
    reader: EventReader,
    seen: usize,
}

impl Http {
    pub fn new(url: &str) -> Result<Self, ModelError> {
        let connector = connector(url, CONNECT_WITHIN).map_err(|error| ModelError::Certificates(error.to_string()))?;
        Ok(Self { client: Client::builder(TokioExecutor::new()).build(connector) })
    }

    pub async fn post(&self, url: &str, headers: &[(&str, String)], body: &Value) -> Result<Answer, ModelError> {
        let mut request = Request::builder().method(Method::POST).uri(url).header(CONTENT_TYPE, "application/json");
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let request = request.body(Full::new(Bytes::from(body.to_string())));
        let request = request.map_err(|_| ModelError::BadAddress(url.to_owned()))?;
        let shown = shown(request.uri());
        let response = self.client.request(request).await.map_err(|error| {
            let why = root_cause(&error);
            if error.is_connect() { ModelError::Unreachable { url: shown, why } } else { ModelError::Broken(why) }
        })?;
        if !response.status().is_success() {
            return Err(refusal(response).await);
        }
        let kind = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if kind.starts_with("text/event-stream") {
            return Ok(Answer::Events(EventStream {
                body: response.into_body(),
                reader: EventReader::default(),
                seen: 0,
            }));
        }
        let bytes = collect(response.into_body()).await?;
        serde_json::from_slice(&bytes).map(Answer::Whole).map_err(|error| ModelError::Strange(error.to_string()))
    }
}

impl EventStream {
    /// The next event. None at the end of the stream.
    pub async fn next(&mut self) -> Result<Option<Event>, ModelError> {
        loop {
            if let Some(event) = self.reader.pop() {
                return Ok(Some(event));
            }
            let frame = tokio::time::timeout(SILENCE, self.body.frame()).await;
            match frame.map_err(|_| ModelError::Broken("it has not been heard of for three minutes".to_owned()))? {
                None => return Ok(None),
                Some(Ok(frame)) => {
                    let Some(bytes) = frame.data_ref() else { continue };
                    self.seen += bytes.len();
                    if self.seen > MAX_ANSWER {
                        return Err(ModelError::Strange("the answer has no end".to_owned()));
                    }
                    self.reader.push(bytes);
                }
                Some(Err(error)) => return Err(ModelError::Broken(root_cause(&error))),
            }
        }
    }
}

async fn collect(body: Incoming) -> Result<Bytes, ModelError> {
    let all = Limited::new(body, MAX_ANSWER).collect();
    Ok(all.await.map_err(|error| ModelError::Broken(error.to_string()))?.to_bytes())
}

async fn refusal(response: Response<Incoming>) -> ModelError {
    let (status, retry_after) = (response.status().as_u16(), retry_after(response.headers(), Timestamp::now()));
    let bytes = collect(response.into_body()).await.unwrap_or_default();
    let message = match serde_json::from_slice::<Value>(&bytes) {
        Ok(body) => error_message(&body).unwrap_or_else(|| body.to_string()),
        Err(_) => String::from_utf8_lossy(&bytes).into_owned(),
    };
    ModelError::Refused { status, message: message.chars().take(SHOWN).collect(), retry_after }
}

/// All three APIs put the error message in the same place.
pub fn error_message(body: &Value) -> Option<String> {
    let error = &body["error"];
    error["message"].as_str().or(error.as_str()).or(body["message"].as_str()).map(str::to_owned)
}

/// Parses seconds or a date. A date in the past gives none.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let said = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = said.parse() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = DateTimeParser::new().parse_timestamp(said).ok()?;
    Duration::try_from(date.duration_since(now)).ok()
}

/// The URL without parts that may be secret.
fn shown(uri: &Uri) -> String {
    let (scheme, host) = (uri.scheme_str().unwrap_or_default(), uri.host().unwrap_or_default());
    let port = uri.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{scheme}://{host}{port}{}", uri.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_unreachable_server_is_named_without_secrets() {
        let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let url = format!("http://me:secret@{gone}/v1/messages?key=secret");
        let Err(error) = Http::new(&url).unwrap().post(&url, &[], &Value::Null).await else { panic!("it is there") };
        let why = error.to_string();
        let named = format!("cannot reach the model's server at http://{gone}/v1/messages: ");
        assert!(why.starts_with(&named) && !why.contains("secret"), "{why}");
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now: Timestamp = "2026-02-03T04:05:06Z".parse().unwrap();
        let said = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, value.parse().unwrap());
            retry_after(&headers, now)
        };
        for (value, seconds) in [("0", 0), (" 12 ", 12), ("Tue, 03 Feb 2026 04:06:06 GMT", 60)] {
            assert_eq!(said(value), Some(Duration::from_secs(seconds)), "{value}");
        }
        assert_eq!(said("1.5"), Some(Duration::from_millis(1500)));
        for nothing in ["Tue, 03 Feb 2026 04:05:05 GMT", "-1", "soon", "", "NaN", "1e30"] {
            assert_eq!(said(nothing), None, "{nothing}");
        }
    }
}
