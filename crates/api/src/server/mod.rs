//! The server: connections, their limits, interim responses, and draining at shutdown.

mod heartbeat;
mod listener;
mod phase;
mod pool;
mod pulsed;
mod respond;
mod serve;
mod socket;
mod upgraded;

pub use listener::Listener;
pub use serve::{ServerLimits, serve};
