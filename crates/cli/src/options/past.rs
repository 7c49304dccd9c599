//! Commands about a sandbox's past: checkpoints, the way back, and what changed.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub struct Timeline {
    /// An id, or as much of its beginning as no other sandbox has
    pub sandbox: String,
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Checkpoint {
    #[command(subcommand)]
    pub command: CheckpointCommand,
}

#[derive(Debug, Subcommand)]
pub enum CheckpointCommand {
    /// Make one of this moment, and print its number
    Create {
        /// An id, or as much of its beginning as no other sandbox has
        sandbox: String,
        /// Keep it under this name
        #[arg(long)]
        name: Option<String>,
    },
    /// Give one a name, which keeps it; without a name, take it away
    Name {
        /// An id, or as much of its beginning as no other sandbox has
        sandbox: String,
        /// Its number, or the name it has
        checkpoint: String,
        name: Option<String>,
    },
}

#[derive(Debug, Args)]
pub struct Rewind {
    /// An id, or as much of its beginning as no other sandbox has
    pub sandbox: String,
    /// The checkpoint's number or name
    #[arg(long, value_name = "CHECKPOINT")]
    pub to: String,
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Diff {
    /// SANDBOX for how it is now, SANDBOX@CHECKPOINT, or a snapshot
    pub from: String,
    /// The same [default: the first one's sandbox, now]
    pub to: Option<String>,
    /// Compare this directory only; paths in the diff start there
    #[arg(long, default_value = "/", value_name = "DIRECTORY")]
    pub path: String,
    /// Print a patch, for `git apply` or `patch -p1`
    #[arg(short, long, conflicts_with_all = ["tar", "json"])]
    pub patch: bool,
    /// Write what was added and changed to a tar; `-` for stdout
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub tar: Option<PathBuf>,
    #[arg(long)]
    pub json: bool,
}
