//! Command lines such as `claude` and `codex`, which run a task in the sandbox instead of our loop.
//!
//! The model's key stays on the host. The guest has a placeholder, and the sandbox's gateway replaces it in requests to
//! the model's server. The sandbox can reach that server only.

mod cli;
mod command;
mod output;
mod report;

pub use cli::{Engine, EngineError};
