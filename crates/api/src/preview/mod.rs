//! Previews: HTTP and WebSocket servers in sandboxes, reachable from outside with a token.

pub(crate) mod authorize;
mod credentials;
pub(crate) mod host;
pub(crate) mod proxy;
