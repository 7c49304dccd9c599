//! `sandling run`: runs code in a sandbox that is removed afterwards.

mod code;
mod command;
mod local;
mod refused;
mod remote;
mod report;

pub use command::run;
pub use report::{print_limit, print_output};
