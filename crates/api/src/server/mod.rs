//! The server: connections, their limits, interim responses, and draining at shutdown.

mod connection;
mod heartbeat;
mod serve;
mod upgraded;

pub use serve::{ServerLimits, serve};
