//! The host that a request is for, if it is unambiguous. No I/O.

use std::net::Ipv4Addr;

use hyper::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use hyper::http::request::Parts;
use hyper::{Method, Version};

use crate::name::HostName;
use crate::policy::Refusal;

/// The host that a request is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    Name(HostName),
    Address(Ipv4Addr),
    /// An HTTP/1.0 request without a host.
    Unsaid,
}

/// Reads the host of a request to `port`.
pub fn read(parts: &Parts, port: u16, usual_port: u16) -> Result<Host, Refusal> {
    if parts.method == Method::CONNECT {
        return Err(Refusal::Relay);
    }
    let both_lengths = parts.headers.contains_key(CONTENT_LENGTH) && parts.headers.contains_key(TRANSFER_ENCODING);
    // Headers that `Connection` names are removed, but the host header that was judged must reach the server.
    let hides_host = parts.headers.get_all(CONNECTION).iter().any(|value| contains_token(value, HOST.as_str()));
    if both_lengths || hides_host || parts.version > Version::HTTP_11 {
        return Err(Refusal::HttpMalformed);
    }
    let mut hosts = parts.headers.get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => parse(host.as_bytes(), port, usual_port)?,
        (None, _) if parts.version == Version::HTTP_10 => Host::Unsaid,
        _ => return Err(Refusal::HttpMalformed),
    };
    match parts.uri.authority() {
        // A request with another authority is for a forward proxy, unless the authority matches the host.
        Some(authority) if parse(authority.as_str().as_bytes(), port, usual_port)? != host => Err(Refusal::Relay),
        _ => Ok(host),
    }
}

fn parse(text: &[u8], port: u16, usual_port: u16) -> Result<Host, Refusal> {
    let text = std::str::from_utf8(text).map_err(|_| Refusal::HttpMalformed)?;
    let (host, named) = match text.split_once(':') {
        Some((host, named)) => (host, named.parse().map_err(|_| Refusal::HttpMalformed)?),
        None => (text, usual_port),
    };
    if named != port {
        return Err(Refusal::HostDiffers);
    }
    match (host.parse::<Ipv4Addr>(), host.parse::<HostName>()) {
        (Ok(address), _) => Ok(Host::Address(address)),
        (_, Ok(name)) => Ok(Host::Name(name)),
        _ => Err(Refusal::HttpMalformed),
    }
}

/// Whether a request asks for another protocol. Only WebSocket is allowed.
pub fn upgrades(parts: &Parts) -> Result<bool, Refusal> {
    if !parts.headers.contains_key(UPGRADE) {
        return Ok(false);
    }
    let asked = parts.headers.get_all(CONNECTION).iter().any(|value| contains_token(value, "upgrade"));
    if asked && names_websocket(&parts.headers) { Ok(true) } else { Err(Refusal::OtherProtocol) }
}

/// Whether the requested protocol is WebSocket, and nothing else.
pub fn names_websocket(headers: &HeaderMap) -> bool {
    let mut named = headers.get_all(UPGRADE).iter();
    named.next().is_some_and(|protocol| protocol.as_bytes().eq_ignore_ascii_case(b"websocket"))
        && named.next().is_none()
}

/// Whether a comma-separated value contains `token`.
pub fn contains_token(value: &HeaderValue, token: &str) -> bool {
    value.to_str().is_ok_and(|text| text.split(',').any(|part| part.trim().eq_ignore_ascii_case(token)))
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    fn parts(method: &str, uri: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn get(uri: &str, headers: &[(&str, &str)]) -> Result<Host, Refusal> {
        read(&parts("GET", uri, headers), 80, 80)
    }

    #[test]
    fn the_host_is_one_name_on_this_port() {
        let name = Ok(Host::Name("example.com".parse().unwrap()));
        assert_eq!(get("/", &[("host", "Example.com")]), name);
        assert_eq!(get("/", &[("host", "example.com:80")]), name);
        assert_eq!(get("http://example.com/", &[("host", "example.com")]), name);
        assert_eq!(get("/", &[("host", "example.com:8080")]), Err(Refusal::HostDiffers));
        assert_eq!(get("/", &[("host", "93.184.216.34")]), Ok(Host::Address(Ipv4Addr::new(93, 184, 216, 34))));
    }

    #[test]
    fn ambiguous_hosts_are_refused() {
        for headers in [
            &[][..],
            &[("host", "a.com"), ("host", "b.com")],
            &[("host", "a.com, b.com")],
            &[("host", "[::ffff:169.254.169.254]")],
            &[("host", "user@a.com")],
            &[("host", "0x7f.1")],
            &[("host", "")],
            &[("host", "a.com"), ("content-length", "3"), ("transfer-encoding", "chunked")],
            &[("host", "a.com"), ("connection", "close, Host")],
        ] {
            assert_eq!(get("/", headers), Err(Refusal::HttpMalformed), "{headers:?}");
        }
    }

    #[test]
    fn proxy_requests_are_refused() {
        assert_eq!(read(&parts("CONNECT", "evil.com:443", &[("host", "a.com")]), 80, 80), Err(Refusal::Relay));
        assert_eq!(get("http://evil.com/", &[("host", "a.com")]), Err(Refusal::Relay));
    }

    #[test]
    fn only_websocket_upgrades_are_allowed() {
        let asked = |protocol: &str| upgrades(&parts("GET", "/", &[("upgrade", protocol), ("connection", "Upgrade")]));
        assert_eq!(asked("websocket"), Ok(true));
        assert_eq!(asked("h2c"), Err(Refusal::OtherProtocol));
        assert_eq!(upgrades(&parts("GET", "/", &[])), Ok(false));
        let both = [("connection", "Upgrade, HTTP2-Settings"), ("upgrade", "websocket"), ("upgrade", "h2c")];
        assert_eq!(upgrades(&parts("GET", "/", &both)), Err(Refusal::OtherProtocol));
    }
}
