//! TCP connections: opens them, judges what they show, relays them, and ends them.

mod dial;
mod guest_dns;
mod intercept;
mod open;
mod serve;

pub(crate) use dial::{dial, hang_up};
pub(crate) use open::segment;
