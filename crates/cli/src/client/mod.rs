//! A server's client: where it is, requests, event streams, WebSockets.
//!
//! Hyper does the work, since the server brings it along anyway: one pool of connections for requests, uploads, event
//! streams and WebSockets alike, and rustls beneath all of them where the address is https.

mod address;
mod answers;
mod error;
mod events;
mod http;
mod sandbox;
mod session;
mod socket;

pub use address::Origin;
pub use answers::*;
pub use error::ClientError;
pub use http::{Client, query, segment};
pub use session::{Ended, Heard, Input, Stream};
