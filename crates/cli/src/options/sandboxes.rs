//! Options of the commands that create, list and remove sandboxes.

use clap::Args;
use sandling_wire::DEFAULT_TEMPLATE;

use super::parse;
use super::run::MachineOptions;

#[derive(Debug, Args)]
pub struct Create {
    /// Name of the sandbox; it must be unique in the workspace, and works wherever an ID does
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Template for the sandbox
    #[arg(short, long, default_value = DEFAULT_TEMPLATE, value_name = "NAME")]
    pub template: String,
    /// OCI image for the sandbox: a reference like python:3.12-slim, or docker-archive:FILE, oci:DIR or a path
    #[arg(long, value_name = "IMAGE", conflicts_with = "template")]
    pub image: Option<String>,
    /// Start from this snapshot (ID, unique prefix or name), with its resources, instead of a template
    #[arg(long, value_name = "SNAPSHOT", conflicts_with_all = ["template", "image"])]
    pub from_snapshot: Option<String>,
    /// Set an environment variable for every command; may be repeated
    #[arg(short, long = "env", value_name = "NAME=VALUE", value_parser = parse::pair)]
    pub env: Vec<(String, String)>,
    /// Add a label, for `sandling ls --label`; may be repeated
    #[arg(short, long = "label", value_name = "NAME=VALUE", value_parser = parse::pair)]
    pub labels: Vec<(String, String)>,
    /// Lifetime of the sandbox: 90s, 15m, 12h, 7d [default: the server's]
    #[arg(long, value_name = "TIME", value_parser = parse::seconds)]
    pub ttl: Option<u64>,
    /// Idle timeout: remove the sandbox when it has been unused for this long
    #[arg(long, value_name = "TIME", value_parser = parse::seconds)]
    pub idle: Option<u64>,
    /// Keep the sandbox until you remove it
    #[arg(long)]
    pub persistent: bool,
    /// Create a checkpoint before each command, code cell and file change
    #[arg(long, value_name = "every-exec", value_parser = ["every-exec"])]
    pub checkpoints: Option<String>,
    /// Keep the newest N unnamed checkpoints [default: 20]
    #[arg(long, value_name = "N", requires = "checkpoints", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub checkpoints_kept: Option<u32>,
    /// In a fleet with a store: if the sandbox's node is lost, wake it on another one where its last point was made
    #[arg(long, value_name = "snapshot", value_parser = ["snapshot"])]
    pub failover: Option<String>,
    #[command(flatten)]
    pub machine: MachineOptions,
    /// Print the sandbox's details as JSON instead of its ID
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Ls {
    /// Show only sandboxes with this label; may be repeated
    #[arg(short, long = "label", value_name = "NAME=VALUE", value_parser = parse::pair)]
    pub labels: Vec<(String, String)>,
    /// Print only IDs
    #[arg(short, long, conflicts_with = "json")]
    pub quiet: bool,
    #[arg(long, help = "Print JSON")]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Top {
    /// Sandbox ID, a unique prefix of it, or its name
    pub sandbox: String,
}

#[derive(Debug, Args)]
pub struct Stats {
    /// Sandbox ID, a unique prefix of it, or its name [default: all running sandboxes]
    #[arg(value_name = "SANDBOX")]
    pub sandboxes: Vec<String>,
    #[arg(long, help = "Print JSON")]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Execs {
    /// Sandbox ID, a unique prefix of it, or its name
    pub sandbox: String,
    #[arg(long, help = "Print JSON")]
    pub json: bool,
}

/// One or more sandboxes.
#[derive(Debug, Args)]
pub struct SandboxList {
    /// Sandbox ID, a unique prefix of it, or its name
    #[arg(required = true, value_name = "SANDBOX")]
    pub sandboxes: Vec<String>,
}

#[derive(Debug, Args)]
pub struct Hibernate {
    #[command(flatten)]
    pub list: SandboxList,
    /// Save only the disk: the sandbox boots when it wakes, and its processes are gone
    #[arg(long)]
    pub disk_only: bool,
}

#[derive(Debug, Args)]
pub struct Rm {
    /// Sandbox ID, a unique prefix of it, or its name
    #[arg(required_unless_present = "all", value_name = "SANDBOX")]
    pub sandboxes: Vec<String>,
    /// Remove every sandbox of the workspace
    #[arg(long, conflicts_with = "sandboxes")]
    pub all: bool,
}
