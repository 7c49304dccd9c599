//! One request and its answer, through redirects.

use std::net::IpAddr;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION, USER_AGENT};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;

use super::connect::{Connector, Scheme, Stream};
use super::error::RegistryError;
use super::options::{Endpoint, Role, Timeouts};

const MOST_REDIRECTS: usize = 5;
/// How much of an error's body is read, and shown.
const LONGEST_ERROR: usize = 64 * 1024;
const SHOWN: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Url {
    pub scheme: Scheme,
    pub endpoint: Endpoint,
    /// Path and query.
    pub path: String,
}

pub(super) struct Outgoing {
    pub method: Method,
    pub url: Url,
    pub headers: Vec<(HeaderName, String)>,
    /// Sent to the URL's own host only.
    pub authorization: Option<HeaderValue>,
    /// A request with a body does not follow redirects.
    pub body: Bytes,
}

pub(super) struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Body,
    pub sender: Sender,
}

/// Who sent the answer.
#[derive(Debug, Clone)]
pub(super) struct Sender {
    pub host: String,
    /// The address of the first host, which the others may share.
    pub registry: Option<IpAddr>,
    pub is_other_host: bool,
}

pub(super) struct Body {
    incoming: Incoming,
    host: String,
    idle: Duration,
    _connection: Connection,
}

/// Ends the connection's task with the body.
struct Connection(tokio::task::JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Url {
    pub fn parse(text: &str, role: Role) -> Option<Self> {
        let uri: Uri = text.parse().ok()?;
        let (scheme, default) = match uri.scheme_str()? {
            "https" => (Scheme::Https, 443),
            "http" => (Scheme::Http, 80),
            _ => return None,
        };
        let host = uri.host()?.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let endpoint = Endpoint { host, port: uri.port_u16().unwrap_or(default), role };
        if endpoint.host.is_empty() { None } else { Some(Self { scheme, endpoint, path }) }
    }

    fn join(&self, location: &str) -> Option<Self> {
        let prefix = match self.scheme {
            Scheme::Http => "http:",
            Scheme::Https => "https:",
        };
        let absolute = if location.contains("://") {
            location.to_owned()
        } else if location.starts_with("//") {
            format!("{prefix}{location}")
        } else if location.starts_with('/') {
            format!("{prefix}//{}{location}", self.authority())
        } else {
            let folder =
                self.path.split('?').next().unwrap_or_default().rsplit_once('/').map_or("", |(folder, _)| folder);
            format!("{prefix}//{}{folder}/{location}", self.authority())
        };
        Self::parse(&absolute, Role::Other)
    }

    fn is_same_origin(&self, other: &Self) -> bool {
        (self.scheme, &self.endpoint.host, self.endpoint.port)
            == (other.scheme, &other.endpoint.host, other.endpoint.port)
    }

    fn authority(&self) -> String {
        let Endpoint { host, port, .. } = &self.endpoint;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    fn host_header(&self) -> String {
        match (self.scheme, self.endpoint.port) {
            (Scheme::Http, 80) | (Scheme::Https, 443) if !self.endpoint.host.contains(':') => {
                self.endpoint.host.clone()
            }
            _ => self.authority(),
        }
    }
}

/// Sends a request. `registry` is the address of the registry that referred to this URL.
pub(super) async fn send(
    connector: &Connector,
    timeouts: &Timeouts,
    outgoing: &Outgoing,
    mut registry: Option<IpAddr>,
) -> Result<Reply, RegistryError> {
    let mut url = outgoing.url.clone();
    let mut authorization = outgoing.authorization.as_ref();
    for hop in 0..=MOST_REDIRECTS {
        let host = url.endpoint.to_string();
        let connected = connector.connect(&url.endpoint, url.scheme, registry).await?;
        if hop == 0 && url.endpoint.role == Role::Registry {
            registry = connected.address;
        }
        let request = request(outgoing, &url, authorization)?;
        let (response, connection) = converse(connected.stream, request, &host, timeouts.idle).await?;
        let (head, incoming) = response.into_parts();
        let location =
            head.headers.get(LOCATION).map(|location| String::from_utf8_lossy(location.as_bytes()).into_owned());
        let target = match (head.status.as_u16(), location) {
            (301 | 302 | 303 | 307 | 308, Some(location)) if outgoing.body.is_empty() => location,
            _ => {
                let is_other_host = !url.is_same_origin(&outgoing.url);
                let body = Body { incoming, host: host.clone(), idle: timeouts.idle, _connection: connection };
                let sender = Sender { host, registry, is_other_host };
                return Ok(Reply { status: head.status, headers: head.headers, body, sender });
            }
        };
        let mut next = url
            .join(&target)
            .ok_or_else(|| RegistryError::BadRedirect { host: host.clone(), to: printable(&target, SHOWN) })?;
        if url.scheme == Scheme::Https && next.scheme == Scheme::Http {
            return Err(RegistryError::Downgrade { host, to: format!("http://{}", next.endpoint) });
        }
        if next.is_same_origin(&outgoing.url) {
            next.endpoint.role = outgoing.url.endpoint.role;
        }
        if !next.is_same_origin(&url) {
            authorization = None;
        }
        url = next;
    }
    Err(RegistryError::TooManyRedirects { host: outgoing.url.endpoint.to_string(), limit: MOST_REDIRECTS })
}

fn request(
    outgoing: &Outgoing,
    url: &Url,
    authorization: Option<&HeaderValue>,
) -> Result<Request<Full<Bytes>>, RegistryError> {
    let mut builder = Request::builder().method(outgoing.method.clone()).uri(&url.path);
    builder = builder.header(HOST, url.host_header()).header(USER_AGENT, "sandling");
    for (name, value) in &outgoing.headers {
        builder = builder.header(name, value);
    }
    if let Some(authorization) = authorization {
        builder = builder.header(AUTHORIZATION, authorization);
    }
    let request = builder.body(Full::new(outgoing.body.clone()));
    request.map_err(|error| RegistryError::Broken { host: url.endpoint.to_string(), why: error.to_string() })
}

async fn converse(
    stream: Box<dyn Stream>,
    request: Request<Full<Bytes>>,
    host: &str,
    idle: Duration,
) -> Result<(hyper::Response<Incoming>, Connection), RegistryError> {
    let broken = |error: hyper::Error| broken(host, &error);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let connection = Connection(tokio::spawn(async move {
        // The answer or its body reports the same error.
        let _ = connection.await;
    }));
    let response = tokio::time::timeout(idle, sender.send_request(request)).await;
    let timed_out = |_| RegistryError::TimedOut { host: host.to_owned(), after: idle };
    Ok((response.map_err(timed_out)?.map_err(broken)?, connection))
}

fn broken(host: &str, error: &hyper::Error) -> RegistryError {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    RegistryError::Broken { host: host.to_owned(), why: cause.to_string() }
}

impl Body {
    /// The next bytes. None at the end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, RegistryError> {
        loop {
            let frame = tokio::time::timeout(self.idle, self.incoming.frame()).await;
            match frame.map_err(|_| RegistryError::TimedOut { host: self.host.clone(), after: self.idle })? {
                None => return Ok(None),
                Some(Err(error)) => return Err(broken(&self.host, &error)),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) if bytes.is_empty() => continue,
                    Ok(bytes) => return Ok(Some(bytes)),
                    Err(_) => continue,
                },
            }
        }
    }

    async fn collect(&mut self, what: &str, limit: usize) -> Result<Vec<u8>, RegistryError> {
        let mut all = Vec::new();
        while let Some(bytes) = self.chunk().await? {
            if all.len() + bytes.len() > limit {
                return Err(RegistryError::TooLarge {
                    host: self.host.clone(),
                    what: what.to_owned(),
                    limit: limit as u64,
                });
            }
            all.extend_from_slice(&bytes);
        }
        Ok(all)
    }
}

impl Reply {
    pub fn length(&self) -> Option<u64> {
        self.headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The whole body, at most `limit` bytes and within the time for a document.
    pub async fn document(mut self, what: &str, limit: usize, timeouts: &Timeouts) -> Result<Vec<u8>, RegistryError> {
        if self.length().is_some_and(|length| length > limit as u64) {
            return Err(RegistryError::TooLarge { host: self.sender.host, what: what.to_owned(), limit: limit as u64 });
        }
        let after = timeouts.document;
        let body = tokio::time::timeout(after, self.body.collect(what, limit)).await;
        body.map_err(|_| RegistryError::TimedOut { host: self.sender.host, after })?
    }

    /// What the server says about an error, in one short line.
    pub async fn message(self, timeouts: &Timeouts) -> String {
        let bytes = self.document("an error", LONGEST_ERROR, timeouts).await.unwrap_or_default();
        let Ok(body) = serde_json::from_slice::<serde_json::Value>(&bytes) else { return String::new() };
        let message = &body["errors"][0]["message"];
        let message = message.as_str().or(body["details"].as_str()).or(body["message"].as_str());
        printable(message.unwrap_or_default(), SHOWN)
    }
}

/// At most this many characters, none of which control a terminal.
pub(super) fn printable(text: &str, most: usize) -> String {
    text.chars().take(most).map(|char| if char.is_control() { '\u{fffd}' } else { char }).collect()
}
