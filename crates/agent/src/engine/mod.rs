//! Command lines of others that do a task by themselves, in the sandbox, instead of our loop.
//!
//! The model's key stays here. The guest has a placeholder, which the sandbox's gateway replaces on the way to the
//! model's server, and that server is all that it reaches.

mod cli;
mod command;
mod output;
mod report;

pub use cli::{Engine, EngineError};
