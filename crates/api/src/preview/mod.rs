//! Previews: HTTP and WebSocket servers in sandboxes, seen from outside. Never without a token.

pub(crate) mod authorize;
pub(crate) mod host;
pub(crate) mod proxy;
