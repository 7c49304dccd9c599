//! Commands about copies of a sandbox: forks and snapshots.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{OnVolumes, parse};

#[derive(Debug, Args)]
pub struct Fork {
    /// An id, or as much of its beginning as no other sandbox has
    pub sandbox: String,
    /// How many children, all of one moment
    #[arg(short = 'n', long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub count: u32,
    /// How long each lives: 90s, 15m, 12h, 7d [default: as long as its parent was given]
    #[arg(long, value_name = "TIME", value_parser = parse::seconds)]
    pub ttl: Option<u64>,
    /// Let the children use the parent's secrets
    #[arg(long)]
    pub secrets: bool,
    /// What the children do with the parent's volumes; to be said if it has any
    #[arg(long, value_enum, value_name = "WHAT")]
    pub volumes: Option<OnVolumes>,
    /// Print all that is known of the children, and what each can prove
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Snapshot {
    #[command(subcommand)]
    pub command: SnapshotCommand,
}

#[derive(Debug, Subcommand)]
pub enum SnapshotCommand {
    /// Save a sandbox, which goes on, and print the snapshot's id
    #[command(after_help = "Example:\n  sandling create --from-snapshot $(sandling snapshot create 3f2a)")]
    Create {
        /// An id, or as much of its beginning as no other sandbox has
        sandbox: String,
        /// For people
        #[arg(long)]
        name: Option<String>,
        /// What becomes of the sandbox's volumes in what is made of it; to be said if it has any
        #[arg(long, value_enum, value_name = "WHAT")]
        volumes: Option<OnVolumes>,
        #[arg(long)]
        json: bool,
    },
    /// List snapshots
    Ls {
        #[arg(long)]
        json: bool,
    },
    /// Write a snapshot to a file, with everything it stands on
    #[command(after_help = "Example:\n  sandling snapshot export ID - | ssh other sandling snapshot import -")]
    Export {
        snapshot: String,
        /// A file, or `-` for stdout
        file: PathBuf,
    },
    /// Read a snapshot from a file and print its id here
    ///
    /// The host must have the accelerator, the CPU model and the emulator that it was made with.
    Import {
        /// A file, or `-` for stdin
        file: PathBuf,
        /// Instead of the name that it was exported with
        #[arg(long)]
        name: Option<String>,
        #[arg(long)]
        json: bool,
    },
    /// Make a template of a snapshot: its sandboxes begin where it was made
    ToTemplate {
        snapshot: String,
        name: String,
        /// For people
        #[arg(long)]
        description: Option<String>,
    },
    /// Delete snapshots; what stands on one goes on
    Rm {
        #[arg(required = true, value_name = "SNAPSHOT")]
        snapshots: Vec<String>,
    },
}
