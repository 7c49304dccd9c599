//! Previews: HTTP and WebSocket servers in sandboxes, reachable from outside with a token.

pub(crate) mod authorize;
pub(crate) mod credentials;
pub(crate) mod host;
pub(crate) mod page;
pub(crate) mod proxy;
mod unverified_tls;
