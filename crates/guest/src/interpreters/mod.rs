//! Interpreters: warm spares, scripts that run in them, and contexts whose variables last.
//!
//! Each is a driver of ours (`interpreters/` beside this crate's sources, with the contract in its README) that
//! talks JSON lines over a socket of its own, so that nothing the user prints can be taken for an answer.

mod activation;
mod cell;
mod cell_end;
mod context;
mod control;
mod drivers;
mod lane;
mod message;
mod packages;
mod script;
mod table;
mod watch;

pub use activation::Script;
pub use context::Contexts;
pub use drivers::Drivers;
pub use table::{Interpreters, Role};
