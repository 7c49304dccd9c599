//! What Sandling's server and its clients share: requests, responses and events of the HTTP API, one file per resource,
//! and the layout of the home directory.
//!
//! This crate does no work of its own. It depends on neither the engine nor the database, so that a client stays small.
//! The `api` crate converts between these types and the engine's, and checks the values that a client sends.

mod access;
mod dialect;
mod diff;
mod error;
mod events;
mod exec;
mod files;
mod flag;
mod fork;
mod home;
mod home_modes;
mod images;
mod local_token;
mod metrics;
mod network;
mod network_events;
mod network_view;
mod preview;
mod repl;
mod sandbox;
mod secrets;
mod session;
mod snapshot;
mod template;
mod timeline;
mod volume;
mod webhooks;

pub use access::*;
pub use dialect::*;
pub use diff::*;
pub use error::*;
pub use events::*;
pub use exec::*;
pub use files::*;
pub use flag::*;
pub use fork::*;
pub use home::*;
pub use home_modes::WideMode;
pub use images::*;
pub use local_token::*;
pub use metrics::*;
pub use network::*;
pub use network_events::*;
pub use network_view::*;
pub use preview::*;
pub use repl::*;
pub use sandbox::*;
pub use secrets::*;
pub use session::*;
pub use snapshot::*;
pub use template::*;
pub use timeline::*;
pub use volume::*;
pub use webhooks::*;
