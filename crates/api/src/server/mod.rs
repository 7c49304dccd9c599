//! The server: connections, their limits, TLS, interim responses, and draining at shutdown.

mod heartbeat;
mod listener;
mod phase;
mod pool;
mod pulsed;
mod respond;
mod serve;
mod socket;
mod tls;

pub use listener::Listener;
pub use serve::{ServerLimits, serve};
pub use tls::{LocalCertificate, Tls, TlsError};
