//! HTTP only: routes, who may use them, what goes over the wire, errors as statuses, the document that describes it.
//!
//! [`serve`] takes a listening socket and an [`App`]. The rules of sandboxes are the engine's, and so are the rules
//! of who may do what; this crate translates. It has three dialects: `native`, our own API, `pandastack`
//! and `e2b`. No other module knows them but the router that mounts them.

mod activity;
mod app;
mod audit;
mod auth;
mod build_form;
mod call;
mod cell;
mod cell_lanes;
mod closing;
mod context;
mod convert;
mod create_sandbox;
mod dashboard;
mod default_cell;
mod delete_workspace;
mod durability;
mod e2b;
mod error;
mod extract;
mod file_content;
mod fleet;
mod follow;
mod forwarded;
#[doc(hidden)]
pub mod fuzzing;
mod http_client;
mod idempotency;
mod image_refusals;
mod live_requests;
mod meter;
mod metric_history;
mod native;
mod pandastack;
mod passed_on;
mod peer;
mod piped;
mod prelude;
mod preview;
mod range;
mod recorder;
mod refusals;
mod request;
mod request_limits;
mod router;
mod server;
mod service_refusals;
mod snapshots;
mod socket;
mod sse;
mod telemetry;
mod text;
mod tls;
mod webhook_sender;

pub use app::App;
pub use fleet::{
    Fleet, FleetError, FleetSettings, JoinToken, NodeChoices, NodeState, PeerHealth, PullTemplates, Rebuild,
    StoreHealth, address_of_own_engine,
};
pub use forwarded::TrustedProxies;
pub use native::openapi_json;
pub use server::{Listener, ServerLimits, serve};
pub use telemetry::{BadTelemetry, Telemetry, TelemetrySettings};
pub use tls::{LocalCertificate, Tls, TlsError};
// The answers that the command line also gives without a server.
pub use convert::network::{BadNetwork, network_spec};
pub use convert::template::{listed_template, template_view};
pub use convert::{IntoEngine, IntoWire};
