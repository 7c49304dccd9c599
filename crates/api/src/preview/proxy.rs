//! Forwards a request to a port of a sandbox through its control channel, and returns the response.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::client::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use sandling_engine::{LinkError, Sandbox, UseError};
use sandling_protocol::FailureKind;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::app::App;
use crate::closing::Closing;
use crate::error::ApiError;
use crate::preview::{credentials, host, unverified_tls};

/// Headers that apply to a single connection (RFC 9110, 7.6.1).
const HOP_BY_HOP: [HeaderName; 7] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    HeaderName::from_static("keep-alive"),
];

/// Forwards a request whose path and query are already those for the sandbox. Credentials of ours are left out: code in
/// the sandbox could steal them.
pub(crate) async fn forward(
    app: &App,
    sandbox: &Arc<Sandbox>,
    port: u16,
    request: Request,
) -> Result<Response, ApiError> {
    let _call = crate::auth::awake(sandbox).await?;
    let mut request = credentials::remove(app, request);
    let tunnel = sandbox.connect_port(port).await.map_err(|error| unreachable_port(error, port))?;
    let broken = |_| ApiError::new(StatusCode::BAD_GATEWAY, "bad_server", format!("port {port} does not speak HTTP"));
    let wants_upgrade = is_upgrade(request.headers());
    let scheme = host::scheme(request.extensions());
    let seen = seen_host(sandbox.info().settings.request_host.as_deref(), port);
    let seen = seen.unwrap_or(HeaderValue::from_static("localhost"));
    prepare(request.headers_mut(), seen, scheme, wants_upgrade);
    if !sandbox.info().settings.https_ports.contains(&port) {
        return exchange(app, tunnel, request, broken).await;
    }
    let encrypted = unverified_tls::connect(tunnel).await.map_err(|error| {
        let message = format!("port {port} does not speak HTTPS: {error}");
        ApiError::new(StatusCode::BAD_GATEWAY, "bad_server", message)
    })?;
    exchange(app, encrypted, request, broken).await
}

/// Sends a request over a connection of its own. If the response is an upgrade, the connection is joined to the client's.
pub(crate) async fn exchange(
    app: &App,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    mut request: Request,
    broken: impl Fn(hyper::Error) -> ApiError,
) -> Result<Response, ApiError> {
    // Servers need not care about the case of names, but simple ones look for `Host` as everybody writes it.
    let (mut sender, connection) =
        http1::Builder::new().title_case_headers(true).handshake(TokioIo::new(stream)).await.map_err(&broken)?;
    tokio::spawn(connection.with_upgrades());
    let client = is_upgrade(request.headers()).then(|| hyper::upgrade::on(&mut request));
    let mut answer = sender.send_request(request).await.map_err(&broken)?;
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        let Some(client) = client else {
            return Err(ApiError::new(StatusCode::BAD_GATEWAY, "bad_server", "an upgrade that nobody asked for"));
        };
        tokio::spawn(join(client, hyper::upgrade::on(&mut answer), app.closing()));
        return Ok(answer.map(|_| Body::empty()).into_response());
    }
    strip(answer.headers_mut());
    Ok(answer.map(Body::new).into_response())
}

fn unreachable_port(error: UseError, port: u16) -> ApiError {
    match error {
        UseError::Link(LinkError::Failed(failure)) if failure.kind == FailureKind::Refused => {
            ApiError::new(StatusCode::BAD_GATEWAY, "nothing_listens", format!("nothing listens on port {port}"))
        }
        other => other.into(),
    }
}

pub(crate) fn is_upgrade(headers: &HeaderMap) -> bool {
    let connection = headers.get(header::CONNECTION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    headers.contains_key(header::UPGRADE) && connection.to_ascii_lowercase().contains("upgrade")
}

/// Leaves out the headers of the client's connection, except for an upgrade.
pub(crate) fn prepare_connection(headers: &mut HeaderMap, wants_upgrade: bool) {
    strip(headers);
    if wants_upgrade {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    } else {
        headers.remove(header::UPGRADE);
    }
}

/// Prepares a request's headers for the connection to the sandbox.
pub(crate) fn prepare(headers: &mut HeaderMap, seen: HeaderValue, scheme: &'static str, wants_upgrade: bool) {
    let host = headers.get(header::HOST).cloned();
    prepare_connection(headers, wants_upgrade);
    headers.insert(header::HOST, seen);
    headers.insert("x-forwarded-proto", HeaderValue::from_static(scheme));
    if let Some(host) = host {
        headers.insert("x-forwarded-host", host);
    }
}

/// The host that a server on this port sees: what the sandbox's settings say, else `localhost`. `None` if that is no host.
pub(crate) fn seen_host(setting: Option<&str>, port: u16) -> Option<HeaderValue> {
    const LONGEST: usize = 255;
    let host = setting.unwrap_or("localhost:${PORT}").replace("${PORT}", &port.to_string());
    let authority: Authority = host.parse().ok().filter(|_| host.len() <= LONGEST && !host.contains('@'))?;
    HeaderValue::from_str(authority.as_str()).ok()
}

/// Leaves out the headers that apply to a single connection.
pub(crate) fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .filter(|name| *name != header::UPGRADE)
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// Copies bytes in both directions until one side or the server ends.
async fn join(client: OnUpgrade, guest: OnUpgrade, mut closing: Closing) {
    let (Ok(client), Ok(guest)) = tokio::join!(client, guest) else { return };
    let (mut client, mut guest) = (TokioIo::new(client), TokioIo::new(guest));
    tokio::select! {
        // An error means that one side has disconnected; there is no one to report it to.
        _ = tokio::io::copy_bidirectional(&mut client, &mut guest) => {}
        () = closing.reached() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_one_connection_do_not_reach_the_next() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "keep-alive, x-mine"),
            ("x-mine", "1"),
            ("te", "trailers"),
            ("host", "a:1"),
            ("accept", "*/*"),
        ] {
            headers.insert(HeaderName::from_static(name), value.parse().unwrap());
        }
        prepare(&mut headers, seen_host(None, 3000).unwrap(), "https", false);
        let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["accept", "host", "x-forwarded-host", "x-forwarded-proto"]);
        assert_eq!(headers["host"], "localhost:3000");
        assert_eq!(
            (&headers["x-forwarded-host"], &headers["x-forwarded-proto"]),
            (&"a:1".parse().unwrap(), &"https".parse().unwrap())
        );
    }

    #[test]
    fn a_sandbox_may_say_which_host_its_servers_see() {
        let seen = |setting| seen_host(Some(setting), 3000).map(|host| host.to_str().unwrap().to_owned());
        assert_eq!(seen("${PORT}-app.example.com").as_deref(), Some("3000-app.example.com"));
        assert_eq!(seen("app.example.com:8443").as_deref(), Some("app.example.com:8443"));
        for bad in ["", "a b", "a/b", "user@host", "a\r\nb", &"x".repeat(300)] {
            assert_eq!(seen(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn an_upgrade_is_passed_on() {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONNECTION, "keep-alive, Upgrade".parse().unwrap());
        headers.insert(header::UPGRADE, "websocket".parse().unwrap());
        assert!(is_upgrade(&headers));
        prepare(&mut headers, seen_host(None, 80).unwrap(), "http", true);
        assert_eq!(
            (&headers["connection"], &headers["upgrade"]),
            (&"upgrade".parse().unwrap(), &"websocket".parse().unwrap())
        );
    }
}
