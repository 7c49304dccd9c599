//! The engine: all parts of one home directory together, and the operations on sandboxes.

mod checkpoint;
mod create;
mod fork;
mod instance;
mod open;
mod recover;
mod restore;
mod rewind;
mod set_aside;
mod templates;
mod unreadable;
mod volumes;

pub use create::CreateSpec;
pub use fork::{FORK_INDEX, FORK_PARENT, FORK_TREE, Fork, ForkError, ForkSpec, Receipt};
pub use instance::Engine;
pub use open::OpenError;
pub use rewind::Rewound;
