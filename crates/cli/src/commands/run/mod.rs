//! `sandling run`: runs code in a sandbox that is removed afterwards.

mod code;
mod command;
mod files;
mod guest;
mod interactive;
mod launch;
mod local;
mod refused;
mod remote;
mod report;

pub use command::run;
pub use report::{print_limit, print_output};
