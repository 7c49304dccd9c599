//! Interpreters: their processes, control sockets and warm pools, and the contexts that use them.
//!
//! Each interpreter runs a driver (`interpreters/` beside this crate's sources; its README has the contract). A driver
//! talks JSON lines over a socket of its own, so the agent never takes the user's output for an answer.

mod activation;
mod cell;
mod context;
mod control;
mod drivers;
mod message;
mod packages;
mod permit;
mod pool;
mod table;

pub use activation::{Prepared, Script, context_activation, needs_fresh_start};
pub use cell::Cell;
pub use context::{Context, Contexts};
pub use control::{Control, Lines};
pub use drivers::Drivers;
pub use message::{Message, Status};
pub use packages::Packages;
pub use permit::Permit;
pub use pool::Pool;
pub use table::{Interpreter, Interpreters, Role};
