//! Headers in which nodes of a fleet tell each other about the client of a request that one of them passes on. They are
//! read only on connections between nodes.

use axum::http::{HeaderMap, HeaderName, HeaderValue};

use crate::peer::{Peer, Route};

const SCHEME: HeaderName = HeaderName::from_static("sandling-client-scheme");
const ADDRESS: HeaderName = HeaderName::from_static("sandling-client-address");
const DOMAIN: HeaderName = HeaderName::from_static("sandling-client-domain");
/// In the response: the client's token was valid.
const AUTHENTICATED: HeaderName = HeaderName::from_static("sandling-client-authenticated");

/// Describes how the client reached this node. What the client itself wrote in these headers is removed.
pub(crate) fn describe_client(route: &Route, headers: &mut HeaderMap) {
    let address = route.address.to_string();
    for (name, value) in [(SCHEME, Some(route.scheme)), (ADDRESS, Some(&*address)), (DOMAIN, route.domain.as_deref())] {
        headers.remove(&name);
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
            headers.insert(name, value);
        }
    }
}

/// The client's route, as the node that passes the request on describes it. The headers are removed, so that a server in
/// a sandbox does not see them.
pub(crate) fn take_route(node: Route, headers: &mut HeaderMap) -> Route {
    let mut take = |name| headers.remove(name).and_then(|value: HeaderValue| value.to_str().ok().map(str::to_owned));
    let client = take(ADDRESS);
    Route {
        is_passed_on: client.is_some(),
        address: client.and_then(|address| address.parse().ok()).unwrap_or(node.address),
        scheme: if take(SCHEME).as_deref() == Some("http") { "http" } else { "https" },
        domain: take(DOMAIN).map(Into::into),
        sender: node.sender,
    }
}

/// Says in the response whether the client's token was valid. What a server in a sandbox says about that is removed.
pub(crate) fn tell_authenticated(peer: &Peer, headers: &mut HeaderMap) {
    headers.remove(AUTHENTICATED);
    if peer.is_authenticated() {
        headers.insert(AUTHENTICATED, HeaderValue::from_static("yes"));
    }
}

/// Whether the node that answered has accepted the client's token.
pub(crate) fn take_authenticated(headers: &mut HeaderMap) -> bool {
    headers.remove(AUTHENTICATED).is_some()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::peer::Sender;

    fn route(address: &str, domain: Option<&str>, sender: Sender) -> Route {
        let (address, domain) = (address.parse().unwrap(), domain.map(Into::into));
        Route { address, scheme: "http", domain, sender, is_passed_on: false }
    }

    #[test]
    fn a_client_cannot_pose_as_another_one_and_a_sandbox_sees_none_of_it() {
        let mut headers = HeaderMap::new();
        headers.insert(ADDRESS, HeaderValue::from_static("9.9.9.9:9"));
        headers.insert(DOMAIN, HeaderValue::from_static("evil.example"));
        describe_client(&route("1.2.3.4:5", None, Sender::Client), &mut headers);
        let seen = take_route(route("10.0.0.1:7", Some("x"), Sender::Node("m".into())), &mut headers);
        assert_eq!((seen.address, seen.scheme, seen.domain), ("1.2.3.4:5".parse().unwrap(), "http", None));
        assert!(seen.is_passed_on && headers.is_empty(), "{headers:?}");
        let own = take_route(route("10.0.0.1:7", None, Sender::Node("m".into())), &mut headers);
        assert!(!own.is_passed_on, "the node itself asks");
    }

    #[test]
    fn only_a_valid_token_makes_a_connection_a_trusted_one() {
        let trusted = Arc::new(AtomicBool::new(false));
        let peer = Peer::new(route("10.0.0.1:7", None, Sender::Node("m".into())), trusted.clone());
        assert!(trusted.load(Ordering::Relaxed), "a node has shown its certificate");
        let mut said_by_a_sandbox = HeaderMap::new();
        said_by_a_sandbox.insert(AUTHENTICATED, HeaderValue::from_static("yes"));
        tell_authenticated(&peer, &mut said_by_a_sandbox);
        assert!(!take_authenticated(&mut said_by_a_sandbox));
        peer.authenticate();
        let mut headers = HeaderMap::new();
        tell_authenticated(&peer, &mut headers);
        assert!(take_authenticated(&mut headers) && headers.is_empty());
    }
}
