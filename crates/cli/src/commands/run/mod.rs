//! `sandling run`: code in, its output and exit code out, and the sandbox gone.

mod code;
mod command;
mod here;
mod refused;
mod report;
mod served;

pub use command::run;
pub use report::{pass, tell_limit};
