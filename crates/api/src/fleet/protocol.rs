//! What two nodes say about their protocols on a connection.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use sandling_fleet::{Incompatible, Member, Protocol};

use super::member::Fleet;
use crate::error::ApiError;

/// In each request between nodes: what the sender speaks.
const PROTOCOL: HeaderName = HeaderName::from_static("sandling-node-protocol");

/// Says in a request what this node speaks. What a client wrote there is removed.
pub(super) fn announce(headers: &mut HeaderMap) {
    let text = HeaderValue::from_str(&Protocol::OWN.text()).expect("it has only digits and a dash");
    headers.insert(PROTOCOL, text);
}

pub(super) fn refused(error: &Incompatible) -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "node_incompatible", error.to_string())
}

fn too_old(node: &str, what: &str) -> ApiError {
    let message = format!("node {node} must be upgraded first, because its version of Sandling does not know {what}");
    ApiError::conflict("node_too_old", message)
}

impl Fleet {
    /// Refuses a sandbox with failover while a member does not know what that is: the member may get the create.
    pub(crate) fn check_all_know_failover(&self) -> Result<(), ApiError> {
        let Some(node) = self.membership.behind(Protocol::FAILOVER) else { return Ok(()) };
        Err(too_old(&node, "`failover`"))
    }

    /// Refuses a copy of a volume to or from a node that does not know that.
    pub(super) fn check_knows_volume_copies(&self, node: &Member) -> Result<(), ApiError> {
        if node.record.protocol.current >= Protocol::VOLUME_COPIES {
            return Ok(());
        }
        Err(too_old(&node.name, "copies of volumes between nodes"))
    }

    /// Refuses a node whose version is too far from this one's. The header is removed, so that no server in a sandbox sees it.
    pub(super) fn check_protocol(&self, machine: &str, request: &mut Request) -> Result<(), ApiError> {
        let said = request.headers_mut().remove(PROTOCOL);
        let said = said.as_ref().and_then(|said| Protocol::parse(said.to_str().ok()?)).unwrap_or_default();
        if said.check(machine).is_ok() {
            return Ok(());
        }
        let sender = self.membership.machines().into_iter().find(|member| member.record.fingerprint == machine);
        let sender = sender.map_or_else(|| machine.to_owned(), |member| member.name.to_string());
        said.check(&sender).map_err(|error| refused(&error))
    }
}
