//! Data about a request that its handler shares with the outer layers.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};

use axum::extract::Request;
use axum::http::HeaderMap;
use sandling_service::{PreviewToken, Principal};

use crate::live_requests::LiveRequest;
use crate::peer::Peer;

/// The header of a request's id, in both directions.
pub(crate) const HEADER: &str = "x-request-id";

/// Data about a request that its handler shares with the outer layers. Clones are cheap and share it.
#[derive(Clone)]
pub(crate) struct RequestContext(Arc<Context>);

struct Context {
    id: String,
    peer: Option<SocketAddr>,
    live: Arc<LiveRequest>,
    principal: OnceLock<Principal>,
    object: OnceLock<String>,
    action: OnceLock<AuditedAction>,
    /// The number of the audit log's intent; 0 if there is none.
    intent: AtomicI64,
}

/// What the audit log calls a request.
#[derive(Debug, Clone)]
pub(crate) struct AuditedAction {
    pub(crate) name: &'static str,
    /// What the path names.
    pub(crate) object: Option<String>,
}

impl RequestContext {
    pub(crate) fn new(request: &Request, live: Arc<LiveRequest>) -> Self {
        Self(Arc::new(Context {
            live,
            id: requested_id(request.headers()).unwrap_or_else(fresh_id),
            peer: request.extensions().get().map(|peer: &Peer| peer.route().address),
            principal: OnceLock::new(),
            object: OnceLock::new(),
            action: OnceLock::new(),
            intent: AtomicI64::new(0),
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
        self.0.live.came_with_token(&principal.token_prefix);
        let _ = self.0.principal.set(principal.clone());
    }

    pub(crate) fn came_with_preview(&self, token: &PreviewToken) {
        self.0.live.came_with_preview(token);
    }

    pub(crate) fn live(&self) -> &Arc<LiveRequest> {
        &self.0.live
    }

    /// What the audit log calls the request, if it is audited.
    pub(crate) fn action(&self) -> Option<&AuditedAction> {
        self.0.action.get()
    }

    pub(crate) fn acts(&self, action: AuditedAction) {
        let _ = self.0.action.set(action);
    }

    pub(crate) fn set_intent(&self, intent: i64) {
        self.0.intent.store(intent, Ordering::Relaxed);
    }

    /// Takes the intent that was written to the audit log before the request acted.
    pub(crate) fn take_intent(&self) -> Option<i64> {
        Some(self.0.intent.swap(0, Ordering::Relaxed)).filter(|intent| *intent != 0)
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
