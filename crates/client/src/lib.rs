//! A server's client: where it is, requests, event streams, WebSockets; and a server of one's own where there is none.
//!
//! Hyper does the work, since the server brings it along anyway: one pool of connections for requests, uploads, event
//! streams and WebSockets alike, and rustls beneath all of them where the address is https.

mod address;
pub mod announce;
mod answers;
mod error;
mod events;
mod http;
pub mod local;
mod sandbox;
mod session;
mod socket;

pub use address::{API_VARIABLE, Origin, Server};
pub use answers::*;
pub use error::ClientError;
pub use events::{Event, EventReader, Events};
pub use http::{Body, Client, query, segment};
pub use session::{Ended, Heard, Input, Session, Stream};
