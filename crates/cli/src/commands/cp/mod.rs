//! `sandling cp`: copies files and directories to and from a sandbox.
//!
//! Directories are copied file by file, so this needs only the file routes and holds nothing in memory.

mod command;
mod download;
mod local;
mod progress;
mod remote;
mod upload;

pub use command::cp;

/// Number of parallel transfers. Small files spend most of their time waiting for a response.
const PARALLEL_FILES: usize = 8;
