//! TCP with the guest: the gateway's end of each connection.
//!
//! Each connection has its own stack: a smoltcp interface with one socket, found by its ports and address. So a
//! thousand idle connections cost a busy one nothing, and no connection can disturb another.

mod connection;
mod greeting;
mod prefixed;
mod relay;
mod stack;
mod stream;
mod table;

pub(crate) use connection::Connection;
pub use greeting::{Greeting, classify};
pub(crate) use prefixed::Prefixed;
pub(crate) use relay::{copy, relay, relay_stream};
pub(crate) use stream::GuestStream;
pub(crate) use table::{Place, Slot, Table, host_buffer};
