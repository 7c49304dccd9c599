//! Host names of the API and of previews: `{port}-{sandbox}.{domain}`.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use sandling_engine::SandboxId;

use crate::peer::Peer;

/// Marks a request whose host a dialect handles itself, so that it is not treated as a preview.
#[derive(Clone, Copy)]
pub(crate) struct Claimed;

/// The suffix for an API that is reached by IP address. Every system resolves it to itself.
const LOCAL: &str = "localhost";

/// The port and sandbox of a preview's host name; `None` for the API's own host.
pub(crate) fn parse(host: &str) -> Option<(u16, SandboxId)> {
    let (label, _) = host.split_once('.')?;
    let (port, id) = label.split_once('-')?;
    let port = port.parse().ok().filter(|port| *port > 0)?;
    Some((port, SandboxId::parse(id)?))
}

/// The same for an id without dashes, as E2B's clients write it.
pub(crate) fn parse_compact(host: &str) -> Option<(u16, SandboxId)> {
    let (_, id) = host.split_once('.')?.0.split_once('-')?;
    if id.contains('-') { None } else { parse(host) }
}

/// The id in a host name that has a preview's form, but whose port or id cannot exist. `domain` is the one that the
/// server is configured for. Below other domains, such a name may be the API's own.
pub(crate) fn impossible_id<'a>(host: &'a str, domain: Option<&str>) -> Option<&'a str> {
    let (label, parent) = host.split_once('.')?;
    let (port, id) = label.split_once('-')?;
    let parent = without_port(parent).0;
    let is_ours = parent == LOCAL || Some(parent) == domain;
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    (is_ours && is_number && parse(host).is_none()).then_some(id)
}

/// Splits a host into its name, and its port with the colon.
fn without_port(host: &str) -> (&str, &str) {
    match host.rsplit_once(':') {
        Some((name, digits)) if digits.bytes().all(|byte| byte.is_ascii_digit()) => (name, &host[name.len()..]),
        _ => (host, ""),
    }
}

/// The host that a request names.
pub(crate) fn of(headers: &HeaderMap) -> &str {
    headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default()
}

/// The scheme of the connection that a request came over.
pub(crate) fn scheme(extensions: &axum::http::Extensions) -> &'static str {
    extensions.get::<Peer>().map_or("http", |peer| peer.route().scheme)
}

/// How the client reached the API. The URLs that it is given fit that.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    scheme: &'static str,
    host: String,
    domain: String,
}

impl Origin {
    fn new(scheme: &'static str, host: &str, domain: Option<&str>) -> Self {
        let (name, own_port) = without_port(host);
        let is_name = !name.is_empty() && !name.starts_with('[') && name.parse::<std::net::Ipv4Addr>().is_err();
        let named = if is_name { name.strip_prefix("api.").unwrap_or(name) } else { LOCAL };
        let domain = format!("{}{own_port}", domain.unwrap_or(named));
        Self { scheme, host: host.to_owned(), domain }
    }

    /// The domain after the first label of a preview's host: a name, and the API's port.
    pub(crate) fn domain(&self) -> &str {
        &self.domain
    }

    /// A port's preview URL.
    pub(crate) fn preview_url(&self, port: u16, sandbox: &str) -> String {
        format!("{}://{port}-{sandbox}.{}/", self.scheme, self.domain)
    }

    /// The URL of a path of the API.
    pub(crate) fn api_url(&self, path: &str) -> String {
        format!("{}://{}{path}", self.scheme, self.host)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Origin {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let domain = parts.extensions.get::<Peer>().and_then(|peer| peer.route().domain.clone());
        Ok(Self::new(scheme(&parts.extensions), of(&parts.headers), domain.as_deref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0b5e6a52-6d8f-4b0e-9c55-0a3f6f1f3a11";

    #[test]
    fn a_preview_host_names_port_and_sandbox() {
        let (port, id) = parse(&format!("3000-{ID}.localhost:8080")).unwrap();
        assert_eq!((port, id.as_str()), (3000, ID));
        for own in ["localhost:8080", "127.0.0.1:8080", "api.example.org", "3000-nothing.localhost", ID, "0-x.y", ""] {
            assert!(parse(own).is_none(), "{own}");
        }
        assert!(parse(&format!("70000-{ID}.localhost")).is_none());
    }

    #[test]
    fn an_id_that_cannot_exist_is_told_from_the_apis_own_host() {
        for (host, id) in [("3000-nothing.localhost:8080", "nothing"), ("80-a-b.d.example:8443", "a-b")] {
            assert_eq!(impossible_id(host, Some("d.example")), Some(id), "{host}");
        }
        assert_eq!(impossible_id(&format!("70000-{ID}.localhost"), None), Some(ID));
        for own in ["localhost:80", "api.d.example", "1-node.internal", "x-y.localhost", &format!("80-{ID}.localhost")]
        {
            assert_eq!(impossible_id(own, Some("d.example")), None, "{own}");
        }
    }

    #[test]
    fn the_url_fits_the_way_the_api_was_reached() {
        let url = |host: &str| Origin::new("http", host, None).preview_url(80, "s");
        assert_eq!(url("127.0.0.1:8080"), "http://80-s.localhost:8080/");
        assert_eq!(url("[::1]:8080"), "http://80-s.localhost:8080/");
        assert_eq!(url("localhost:8080"), "http://80-s.localhost:8080/");
        assert_eq!(url("api.example.org"), "http://80-s.example.org/");
    }

    #[test]
    fn a_configured_domain_is_used_however_the_api_was_reached() {
        for (host, port) in [("127.0.0.1:8443", ":8443"), ("api.d.example", ""), ("d.example:8443", ":8443")] {
            let origin = Origin::new("https", host, Some("d.example"));
            assert_eq!(origin.domain(), format!("d.example{port}"));
            assert_eq!(origin.preview_url(80, "s"), format!("https://80-s.d.example{port}/"));
            assert_eq!(origin.api_url("/x"), format!("https://{host}/x"));
        }
    }
}
