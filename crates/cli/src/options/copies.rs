//! Options of `sandling fork` and `sandling snapshot`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::parse;
use super::volumes::on_volumes;

#[derive(Debug, Args)]
pub struct Fork {
    /// Sandbox ID, a unique prefix of it, or its name
    pub sandbox: String,
    /// Number of children; all start from the same moment
    #[arg(short = 'n', long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub count: u32,
    /// Start the children at this checkpoint of the sandbox, by number or name, instead of now; `timeline` lists them
    #[arg(long, value_name = "CHECKPOINT")]
    pub at: Option<String>,
    /// Lifetime of each child: 90s, 15m, 12h, 7d [default: the parent's TTL]
    #[arg(long, value_name = "TIME", value_parser = parse::seconds)]
    pub ttl: Option<u64>,
    /// Give the children access to the parent's secrets
    #[arg(long)]
    pub secrets: bool,
    /// What the children get of the parent's volumes; required if it has any
    #[arg(long, value_parser = on_volumes(), value_name = "WHAT")]
    pub volumes: Option<String>,
    /// Print the children's details as JSON, including how each proved its new identity
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum SnapshotCommand {
    /// Save a running sandbox and print the snapshot's ID; the sandbox keeps running
    #[command(after_help = "Example:\n  sandling create --from-snapshot $(sandling snapshot create 3f2a)")]
    Create {
        /// Sandbox ID, a unique prefix of it, or its name
        sandbox: String,
        /// Name of the snapshot; it must be unique, and works wherever an ID does
        #[arg(long)]
        name: Option<String>,
        /// What sandboxes made from the snapshot get of this sandbox's volumes; required if it has any
        #[arg(long, value_parser = on_volumes(), value_name = "WHAT")]
        volumes: Option<String>,
        /// Save only the disk: sandboxes made from the snapshot boot
        #[arg(long)]
        disk_only: bool,
        /// Wait until the fleet's store has the snapshot
        #[arg(long, conflicts_with = "disk_only")]
        durable: bool,
        #[arg(long, help = "Print JSON")]
        json: bool,
    },
    /// List snapshots
    Ls {
        #[arg(long, help = "Print JSON")]
        json: bool,
    },
    /// Write a snapshot and the layers it depends on to a file
    #[command(after_help = "Example:\n  sandling snapshot export ID - | ssh other sandling snapshot import -")]
    Export {
        /// Snapshot ID, a unique prefix of it, or its name
        snapshot: String,
        /// Output file, or `-` for stdout
        file: PathBuf,
    },
    /// Read a snapshot from a file and print its new ID
    ///
    /// This host needs the same accelerator, CPU model and QEMU version as the host that made the snapshot.
    Import {
        /// Input file, or `-` for stdin
        file: PathBuf,
        /// Name of the imported snapshot [default: its exported name]
        #[arg(long)]
        name: Option<String>,
        #[arg(long, help = "Print JSON")]
        json: bool,
    },
    /// Create a template from a snapshot; its sandboxes start in the snapshot's state
    ToTemplate {
        /// Snapshot ID, a unique prefix of it, or its name
        snapshot: String,
        name: String,
        /// Description of the template
        #[arg(long)]
        description: Option<String>,
    },
    /// Delete snapshots; sandboxes made from them keep running
    Rm {
        /// Snapshot ID, a unique prefix of it, or its name
        #[arg(required = true, value_name = "SNAPSHOT")]
        snapshots: Vec<String>,
    },
}
