//! HTTP only: routes, who may use them, what goes over the wire, errors as statuses, the document that describes it.
//!
//! [`serve`] takes a listening socket and an [`App`]. The rules of sandboxes are the engine's, and so are the rules
//! of who may do what; this crate translates. It speaks the wire of the public PandaStack clients and more under the
//! same paths.

mod activity;
mod app;
mod audit;
mod auth;
mod e2b;
mod error;
mod extract;
mod flag;
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
mod wire;

pub use app::App;
pub use router::openapi_json;
pub use server::{ServerLimits, serve};
// What a client sends, for clients in Rust, and the answers that the CLI also gives by itself.
pub use wire::access::{CreateToken, Limits, ScopeName};
pub use wire::exec::{ExecRequest, LanguageName, OnLimitName};
pub use wire::network::{ModeName, NetworkLimits, NetworkRequest, TlsName};
pub use wire::network_events::NetworkEventView;
pub use wire::preview::CreatePreview;
pub use wire::sandbox::{CheckpointsName, CreateSandbox, SandboxView};
pub use wire::secrets::{SecretList, SecretView, SetSecret};
pub use wire::session::{SessionInput, SessionStart, WindowSize};
pub use wire::template::{BuildRequest, TemplateView};
pub use wire::volume::VolumeMount;
