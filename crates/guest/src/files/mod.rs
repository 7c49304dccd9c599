//! Requests about files, which run on worker threads.

mod blocks;
mod change;
mod copy;
mod entry;
mod list;
mod metadata;
mod path;
mod read;
mod remove;
mod serve;
mod walk;
mod watch;
mod write;

pub use path::check as check_path;
pub use serve::serve;
