//! UDP: datagrams of the guest go on from sockets of the host's, and the answers come back.
//!
//! A datagram shows no name that could be checked, so its address and port decide. What begins like QUIC is refused,
//! so that TCP is used, where a name is shown. Each exchange, one port of the guest's with one of somebody else's, has
//! a socket of its own that hears nobody else, and counts as a connection. A datagram that cannot go on at once is
//! lost, as it is in any network: nothing waits here.

mod dial;
mod exchange;
mod far;
mod judge;
mod open;
mod quic;
mod table;

pub(crate) use dial::{dial, hang_up};
pub(crate) use open::datagram;
pub use quic::is_quic;
pub(crate) use table::Exchanges;
