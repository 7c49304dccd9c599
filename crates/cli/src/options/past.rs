//! Options of the commands for checkpoints, rewinding and diffs.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub struct Timeline {
    /// Sandbox ID, a unique prefix of it, or its name
    pub sandbox: String,
    #[arg(long, help = "Print JSON")]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum CheckpointCommand {
    /// Create a checkpoint of the current state and print its number
    Create {
        /// Sandbox ID, a unique prefix of it, or its name
        sandbox: String,
        /// Name of the checkpoint; named checkpoints are not evicted
        #[arg(long)]
        name: Option<String>,
    },
    /// Name a checkpoint so that it is not evicted; without NAME, remove its name
    Name {
        /// Sandbox ID, a unique prefix of it, or its name
        sandbox: String,
        /// Number or current name of the checkpoint
        checkpoint: String,
        name: Option<String>,
    },
}

#[derive(Debug, Args)]
pub struct Rewind {
    /// Sandbox ID, a unique prefix of it, or its name
    pub sandbox: String,
    /// Number or name of the checkpoint
    #[arg(long, value_name = "CHECKPOINT")]
    pub to: String,
    #[arg(long, help = "Print JSON")]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Diff {
    /// First state: SANDBOX (its current state), SANDBOX@CHECKPOINT, or a snapshot ID
    pub from: String,
    /// Second state, in the same form [default: the current state of the first one's sandbox]
    pub to: Option<String>,
    /// Compare only this directory; paths in the diff are relative to it. A relative one starts where commands start
    #[arg(long, default_value = "/", value_name = "DIRECTORY")]
    pub path: String,
    /// Print a patch for `git apply` or `patch -p1`
    #[arg(short, long, conflicts_with_all = ["tar", "json"])]
    pub patch: bool,
    /// Write the added and changed files to a tar file, or `-` for stdout
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub tar: Option<PathBuf>,
    #[arg(long, help = "Print JSON")]
    pub json: bool,
}
