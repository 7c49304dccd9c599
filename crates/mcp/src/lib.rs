//! Sandboxes for MCP clients, over stdio or streamable HTTP, built with the official Rust SDK.
//!
//! A session has one sandbox. It is created when a tool first needs it, and ends with the session. Forks of it have
//! names, and end with it. An unused sandbox ends by itself, so a client that crashes leaves nothing behind. This crate
//! is an ordinary client of a Sandling server, and starts one if there is none.

mod checkpoints;
mod handler;
mod http;
mod progress;
mod resources;
mod session;
mod specs;
mod stdio;

pub use http::{HttpError, serve_http};
pub use session::{Checkpoints, SessionSettings, session_sandbox};
pub use stdio::{StdioError, serve_stdio};
