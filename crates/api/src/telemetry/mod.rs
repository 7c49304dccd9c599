//! OpenTelemetry: spans and metrics for a collector, over OTLP.
//!
//! Everything here is best effort. What the collector does not take in time is dropped, and no request waits for it.
//! Attributes are routes, ids, sizes and results: no tokens, paths, commands, outputs, names of files or addresses of
//! clients.

mod collector;
mod metrics;
mod openmetrics;
mod request_span;
mod settings;
mod spans;
mod start;

pub(crate) use request_span::{finish_request, request_span, socket_span};
pub use settings::{BadTelemetry, TelemetrySettings};
pub use start::Telemetry;
