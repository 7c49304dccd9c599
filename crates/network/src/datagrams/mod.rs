//! Datagrams: starts exchanges, forwards datagrams in both directions, and ends exchanges.

mod carry;
mod dial;
mod open;

pub(crate) use dial::{dial, hang_up};
pub(crate) use open::datagram;
