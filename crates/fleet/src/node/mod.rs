//! One node of a fleet, over any ledger, clock, network and host.

mod create;
mod drain;
mod membership;
mod reap;
mod recover;
mod state;

pub use drain::{end_drain, start_drain};
pub use state::{Node, Settings};
