//! `sandling cp`: copies files and directories to and from a sandbox.
//!
//! A directory is copied as one tar stream. If the sandbox has no tar, it is copied file by file.

mod archive;
mod command;
mod download;
pub mod local;
mod progress;
mod remote;
mod upload;

pub use command::cp;

/// Number of parallel transfers. Small files spend most of their time waiting for a response.
const PARALLEL_FILES: usize = 8;
