//! Client for a Sandling server: finds or starts the server, and sends requests, event streams and WebSockets.
//!
//! It uses hyper, which the server needs anyway. Requests, uploads, event streams and WebSockets share one connection
//! pool, with rustls for https addresses.

mod address;
pub mod announce;
mod answers;
mod connector;
mod error;
mod events;
mod http;
pub mod local;
mod sandbox;
mod session;
mod socket;

pub use address::{API_VARIABLE, Origin, Server};
pub use answers::*;
pub use connector::{ProxyConnector, connector};
pub use error::ClientError;
pub use events::{Event, EventReader, Events};
pub use http::{Body, Client, query, root_cause, segment};
pub use session::{Ended, Input, Session, SessionEvent, Stream};
