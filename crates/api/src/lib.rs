//! HTTP only: routes, who may use them, what goes over the wire, errors as statuses, the document that describes it.
//!
//! [`serve`] takes a listening socket and an [`App`]. The rules of sandboxes are the engine's, and so are the rules
//! of who may do what; this crate translates. It has three dialects: `native`, our own API, `pandastack`
//! and `e2b`. No other module knows them but the router that mounts them.

mod activity;
mod app;
mod audit;
mod auth;
mod closing;
mod context;
mod convert;
mod create_sandbox;
mod e2b;
mod error;
mod extract;
mod file_content;
mod follow;
mod idempotency;
mod meter;
mod native;
mod pandastack;
mod peer;
mod preview;
mod range;
mod recorder;
mod refusals;
mod request;
mod request_limits;
mod router;
mod server;
mod service_refusals;
mod socket;
mod sse;
mod text;

pub use app::App;
pub use native::openapi_json;
pub use server::{Listener, LocalCertificate, ServerLimits, Tls, TlsError, serve};
// The answers that the command line also gives without a server.
pub use convert::network::{BadNetwork, network_spec};
pub use convert::template::template_view;
pub use convert::{IntoEngine, IntoWire};
