//! One node of a fleet, over any ledger, clock, network and host.

mod create;
mod drain;
mod reap;
mod recover;
mod state;
mod upkeep;

pub use drain::{end_drain, start_drain};
pub use state::{Node, Settings};
