//! HTTP only: routes, who may use them, what goes over the wire, errors as statuses, the document that describes it.
//!
//! [`serve`] takes a listening socket and an [`App`]. The rules of sandboxes are the engine's, and so are the rules
//! of who may do what; this crate translates. It speaks the wire of the public PandaStack clients and more under the
//! same paths.

mod activity;
mod app;
mod audit;
mod auth;
mod convert;
mod e2b;
mod error;
mod extract;
mod follow;
mod meter;
mod once;
mod preview;
mod promise;
mod range;
mod recorder;
mod refusals;
mod request;
mod router;
mod routes;
mod server;
mod service_refusals;
mod socket;
mod sse;
mod text;

pub use app::App;
pub use router::openapi_json;
pub use server::{ServerLimits, serve};
// The answers that the command line also gives without a server.
pub use convert::network::{BadNetwork, network_spec};
pub use convert::template::template_view;
pub use convert::{IntoEngine, IntoWire};
