//! `sandling cp`: files and directories into and out of a sandbox.
//!
//! Whole directories go file by file, so nothing but the file routes is needed and nothing is held in memory.

mod command;
mod download;
mod local;
mod progress;
mod remote;
mod upload;

pub use command::cp;

/// Files under way at once: small ones spend most of their time waiting for an answer.
const AT_ONCE: usize = 8;
