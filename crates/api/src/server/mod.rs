//! From a listening socket to requests: connections, their limits, signs of life, and the drain at the end.

mod connection;
mod heartbeat;
mod serve;

pub use serve::{ServerLimits, serve};
