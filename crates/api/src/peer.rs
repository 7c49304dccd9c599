//! The client at the other end of a connection, as a request sees it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sandling_service::RequestPermit;

/// The client of one request. Clones are cheap and share its state.
#[derive(Clone)]
pub(crate) struct Peer(Arc<Shared>);

/// How the client reached the server.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub(crate) address: SocketAddr,
    pub(crate) scheme: &'static str,
    /// The domain that the server is configured for.
    pub(crate) domain: Option<Arc<str>>,
    pub(crate) sender: Sender,
    /// A node passes the request on for a client of its own.
    pub(crate) is_passed_on: bool,
}

/// Who sends the requests of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sender {
    Client,
    /// A reverse proxy that the operator trusts, for a client of its own.
    Proxy,
    /// Another node of the fleet, which has shown its certificate. It names the machine.
    Node(Arc<str>),
    /// On the address for nodes, without a certificate.
    Stranger,
}

impl Sender {
    pub(crate) fn is_node(&self) -> bool {
        matches!(self, Self::Node(_))
    }
}

struct Shared {
    route: Route,
    /// Belongs to the connection: whether its last request had a valid token.
    trusted: Arc<AtomicBool>,
    authenticated: AtomicBool,
    permits: Mutex<Vec<RequestPermit>>,
}

impl Peer {
    pub(crate) fn new(route: Route, trusted: Arc<AtomicBool>) -> Self {
        if route.sender.is_node() {
            trusted.store(true, Ordering::Relaxed);
        }
        Self(Arc::new(Shared { route, trusted, authenticated: AtomicBool::new(false), permits: Mutex::default() }))
    }

    pub(crate) fn route(&self) -> &Route {
        &self.0.route
    }

    /// Records that the request has a valid token. The server keeps connections for such clients.
    pub(crate) fn authenticate(&self) {
        self.0.authenticated.store(true, Ordering::Relaxed);
        self.0.trusted.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_authenticated(&self) -> bool {
        self.0.authenticated.load(Ordering::Relaxed)
    }

    /// Keeps a permit until the response, or the socket that it becomes, has ended.
    pub(crate) fn hold(&self, permit: RequestPermit) {
        self.0.permits.lock().unwrap_or_else(PoisonError::into_inner).push(permit);
    }

    /// Called with the response's head: returns the permits that the rest of the response needs.
    pub(crate) fn answered(&self) -> Vec<RequestPermit> {
        if !self.is_authenticated() && !self.0.route.sender.is_node() {
            self.0.trusted.store(false, Ordering::Relaxed);
        }
        std::mem::take(&mut self.0.permits.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
