//! Previews: HTTP and WebSocket servers in sandboxes, seen from outside. Never without a token.

pub(crate) mod gate;
pub(crate) mod host;
pub(crate) mod proxy;
