//! The server: connections, their limits, interim responses, and draining at shutdown.

mod connection;
mod heartbeat;
mod serve;

pub use serve::{ServerLimits, serve};
