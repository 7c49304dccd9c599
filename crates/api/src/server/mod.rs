//! From a listening socket to requests: connections, their limits, signs of life, and the drain at the end.

mod connection;
mod heartbeat;
mod serve;

pub(crate) use serve::Peer;

pub use serve::{ServerLimits, serve};
