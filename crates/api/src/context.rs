//! Data about a request that its handler shares with the outer layers.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use axum::extract::Request;
use axum::http::HeaderMap;
use sandling_service::Principal;

use crate::peer::Peer;

/// The header of a request's id, in both directions.
pub(crate) const HEADER: &str = "x-request-id";

/// Data about a request that its handler shares with the outer layers. Clones are cheap and share it.
#[derive(Clone)]
pub(crate) struct RequestContext(Arc<Context>);

struct Context {
    id: String,
    peer: Option<SocketAddr>,
    principal: OnceLock<Principal>,
    object: OnceLock<String>,
}

impl RequestContext {
    pub(crate) fn new(request: &Request) -> Self {
        Self(Arc::new(Context {
            id: requested_id(request.headers()).unwrap_or_else(fresh_id),
            peer: request.extensions().get().map(|peer: &Peer| peer.route().address),
            principal: OnceLock::new(),
            object: OnceLock::new(),
        }))
    }

    pub(crate) fn id(&self) -> &str {
        &self.0.id
    }

    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.0.peer
    }

    pub(crate) fn principal(&self) -> Option<&Principal> {
        self.0.principal.get()
    }

    pub(crate) fn object(&self) -> Option<&str> {
        self.0.object.get().map(String::as_str)
    }

    // The first value stays: later ones are the same.
    pub(crate) fn came_from(&self, principal: &Principal) {
        let _ = self.0.principal.set(principal.clone());
    }

    /// Records the object that a request created, which its path cannot name.
    pub(crate) fn made(&self, object: &str) {
        let _ = self.0.object.set(object.to_owned());
    }
}

/// The client's own request id, if it is safe to log.
fn requested_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(HEADER)?.to_str().ok()?;
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    ((1..=64).contains(&id.len()) && id.bytes().all(allowed)).then(|| id.to_owned())
}

fn fresh_id() -> String {
    sandling_service::random::hex::<8>()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn wanted(id: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, HeaderValue::from_str(id).unwrap());
        requested_id(&headers)
    }

    #[test]
    fn a_clients_id_is_kept_unless_it_could_do_harm() {
        assert_eq!(wanted("trace-1_A"), Some("trace-1_A".to_owned()));
        for bad in ["", "a b", "a\"b", "a;b", &"x".repeat(65)] {
            assert_eq!(wanted(bad), None, "{bad:?}");
        }
        assert_eq!(fresh_id().len(), 16);
    }
}
