//! Sandboxes for MCP clients, with the official Rust SDK, over stdio or streamable HTTP.
//!
//! A session has one sandbox, made when a tool first needs it and ended with the session; forks of it are named, and
//! end with it. A client that dies leaves nothing either: a sandbox that nobody uses ends by itself. This crate is a
//! client of a Sandling server like any other, and starts one if there is none.

mod handler;
mod http;
mod past;
mod progress;
mod resources;
mod session;
mod specs;
mod stdio;

pub use http::{HttpError, serve_http};
pub use session::{Checkpoints, SessionSettings};
pub use stdio::{StdioError, serve_stdio};
