//! What a reverse proxy says about its client, in `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Host`.
//!
//! Everybody can write these headers. They are read only on connections from the proxies that the operator names.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use ipnet::IpNet;

use crate::peer::Route;

const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// The addresses of the reverse proxies in front of the server.
#[derive(Debug, Clone, Default)]
pub struct TrustedProxies(Arc<[IpNet]>);

impl TrustedProxies {
    pub fn new(networks: Vec<IpNet>) -> Self {
        Self(networks.into())
    }

    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&address.to_canonical()))
    }

    /// The client's route, as the proxy describes it. The host that the client named becomes the request's host.
    pub(crate) fn take_route(&self, proxy: Route, headers: &mut HeaderMap) -> Route {
        let address = self.client(headers).map_or(proxy.address, |client| SocketAddr::new(client, 0));
        let scheme = match last(headers, &PROTO) {
            Some("https") => "https",
            Some("http") => "http",
            _ => proxy.scheme,
        };
        let host = last(headers, &HOST).filter(|host| is_host(host));
        if let Some(host) = host.and_then(|host| HeaderValue::from_str(host).ok()) {
            headers.insert(header::HOST, host);
        }
        headers.remove(PROTO);
        headers.remove(HOST);
        Route { address, scheme, ..proxy }
    }

    /// Each proxy adds the address of its own client at the end. So the client is the last address that is no proxy's.
    /// What stands before it was written by the client itself.
    fn client(&self, headers: &HeaderMap) -> Option<IpAddr> {
        let mut client = None;
        for text in elements(headers, &FOR).rev() {
            let Some(address) = address(text) else { break };
            client = Some(address);
            if !self.contains(address) {
                break;
            }
        }
        client
    }
}

/// The elements of a header that is a list, in one line or several.
fn elements<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl DoubleEndedIterator<Item = &'h str> {
    let lines: Vec<&HeaderValue> = headers.get_all(name).iter().collect();
    lines.into_iter().flat_map(|line| line.to_str().unwrap_or_default().split(',').map(str::trim))
}

/// The value that the nearest proxy wrote.
fn last<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    elements(headers, name).next_back()
}

fn is_host(text: &str) -> bool {
    text.parse::<Authority>().is_ok_and(|authority| !authority.as_str().contains('@'))
}

/// An address as proxies write it: some add a port, and brackets around IPv6.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    let with_port = || text.parse().ok().map(|socket: SocketAddr| socket.ip());
    bare.parse().ok().or_else(with_port).map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::Sender;

    fn proxies() -> TrustedProxies {
        TrustedProxies::new(vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()])
    }

    fn route(headers: &[(&'static str, &str)]) -> (Route, HeaderMap) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let proxy = Route {
            address: "10.0.0.1:7".parse().unwrap(),
            scheme: "http",
            domain: Some("vm.example".into()),
            sender: Sender::Client,
            is_passed_on: false,
        };
        (proxies().take_route(proxy, &mut map), map)
    }

    fn client(forwarded_for: &str) -> String {
        route(&[("x-forwarded-for", forwarded_for)]).0.address.to_string()
    }

    #[test]
    fn the_client_is_the_last_address_that_is_no_proxys() {
        for (header, client_is) in [
            ("203.0.113.9", "203.0.113.9:0"),
            ("1.1.1.1, 203.0.113.9", "203.0.113.9:0"),
            ("1.1.1.1, 203.0.113.9, 10.2.3.4,fd00::1", "203.0.113.9:0"),
            ("203.0.113.9:4711, ::ffff:10.2.3.4", "203.0.113.9:0"),
            ("[2001:db8::1]:4711", "[2001:db8::1]:0"),
            ("[2001:db8::1]", "[2001:db8::1]:0"),
            ("10.9.9.9, 10.2.3.4", "10.9.9.9:0"),
            ("1.1.1.1, nonsense, 10.2.3.4", "10.2.3.4:0"),
            ("1.1.1.1, nonsense", "10.0.0.1:7"),
            ("", "10.0.0.1:7"),
        ] {
            assert_eq!(client(header), client_is, "{header}");
        }
        let (two_lines, _) = route(&[("x-forwarded-for", "1.1.1.1"), ("x-forwarded-for", "203.0.113.9")]);
        assert_eq!(two_lines.address.to_string(), "203.0.113.9:0");
    }

    #[test]
    fn scheme_and_host_are_those_that_the_nearest_proxy_wrote() {
        let (seen, headers) = route(&[
            ("host", "10.0.0.5:8080"),
            ("x-forwarded-proto", "http, https"),
            ("x-forwarded-host", "evil.example, 3000-x.vm.example:8443"),
        ]);
        assert_eq!(seen.scheme, "https");
        assert_eq!(headers[header::HOST], "3000-x.vm.example:8443");
        assert_eq!(headers.len(), 1, "{headers:?}");
        assert_eq!(seen.domain.as_deref(), Some("vm.example"));
    }

    #[test]
    fn nonsense_changes_nothing() {
        let (seen, headers) = route(&[
            ("host", "vm.example"),
            ("x-forwarded-proto", "gopher"),
            ("x-forwarded-host", "user@evil.example"),
        ]);
        assert_eq!((seen.scheme, seen.address.to_string().as_str()), ("http", "10.0.0.1:7"));
        assert_eq!(headers[header::HOST], "vm.example");
    }
}
