//! UDP: exchanges of datagrams, their sockets on the host, and the rules for them.
//!
//! A datagram shows no name that could be checked, so its address and port decide. Datagrams that start a QUIC
//! connection are refused, so that clients fall back to TCP, where they show a name. An exchange is one port of the
//! guest with one port of another host. Each has its own connected socket and counts as a connection. A datagram that
//! cannot be sent at once is dropped, as in any network.

mod exchange;
pub(crate) mod judge;
mod quic;
mod remote_end;
mod table;

pub(crate) use exchange::Exchange;
pub use quic::is_quic;
pub(crate) use remote_end::RemoteEnd;
pub(crate) use table::Exchanges;
