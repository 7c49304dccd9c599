//! Previews: HTTP and WebSocket servers in sandboxes, seen from outside. Never without a token.

pub(crate) mod authorize;
pub(crate) mod host;
mod key;
mod ledger;
pub(crate) mod proxy;

use key::PreviewKey;

pub(crate) use key::PreviewToken;
pub(crate) use ledger::Ledger;
