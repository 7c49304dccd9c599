//! TCP: the guest's connections end here, and others begin on the host.
//!
//! Each connection has a stack of its own, a smoltcp interface with one socket, found by its ports and address: so a
//! thousand idle ones cost the busy one nothing, and nothing one of them does can disturb another.

mod connection;
mod dial;
mod greeting;
mod guest_dns;
mod open;
mod prefixed;
mod relay;
mod session;
mod stack;
mod stream;
mod table;

pub(crate) use dial::{dial, hang_up};
pub use greeting::{Greeting, classify};
pub(crate) use open::{failure, segment};
pub(crate) use prefixed::Prefixed;
pub(crate) use session::Session;
pub(crate) use stream::GuestStream;
pub(crate) use table::{Table, host_buffer};
