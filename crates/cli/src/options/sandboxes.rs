//! Commands about sandboxes as a whole.

use clap::Args;
use sandling_wire::VolumeMount;

use super::network::Reach;
use super::parse;
use super::run::Sizes;
use super::volumes::mount;

#[derive(Debug, Args)]
pub struct Create {
    #[arg(short, long, default_value = "base", value_name = "NAME")]
    pub template: String,
    /// Begin where this snapshot was made, with its size, instead of from a template
    #[arg(long, value_name = "SNAPSHOT", conflicts_with = "template")]
    pub from_snapshot: Option<String>,
    /// Set a variable in the environment of every command; may be repeated
    #[arg(short, long = "env", value_name = "NAME=VALUE", value_parser = parse::pair)]
    pub env: Vec<(String, String)>,
    /// Hang a label on it, to be found by; may be repeated
    #[arg(short, long = "label", value_name = "NAME=VALUE", value_parser = parse::pair)]
    pub labels: Vec<(String, String)>,
    /// How long it lives: 90s, 15m, 12h, 7d [default: the server's]
    #[arg(long, value_name = "TIME", value_parser = parse::seconds)]
    pub ttl: Option<u64>,
    /// How long it may be unused before it ends
    #[arg(long, value_name = "TIME", value_parser = parse::seconds)]
    pub idle: Option<u64>,
    /// Let it live until it is removed
    #[arg(long)]
    pub persistent: bool,
    /// Make a checkpoint before each command, cell and change of files, to rewind to
    #[arg(long, value_name = "every-exec", value_parser = ["every-exec"])]
    pub checkpoints: Option<String>,
    /// How many checkpoints without a name are kept [default: 20]
    #[arg(long, value_name = "N", requires = "checkpoints", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub checkpoints_kept: Option<u32>,
    /// Give it a volume: NAME:PATH, or NAME:PATH:ro for one that others read, too; may be repeated
    #[arg(long = "volume", value_name = "NAME:PATH[:ro]", value_parser = mount)]
    pub volumes: Vec<VolumeMount>,
    #[command(flatten)]
    pub sizes: Sizes,
    #[command(flatten)]
    pub reach: Reach,
    /// Print all that is known of it instead of its id alone
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Ls {
    /// Only those with this label; may be repeated
    #[arg(short, long = "label", value_name = "NAME=VALUE", value_parser = parse::pair)]
    pub labels: Vec<(String, String)>,
    /// Print ids alone
    #[arg(short, long, conflicts_with = "json")]
    pub quiet: bool,
    #[arg(long)]
    pub json: bool,
}

/// One or more sandboxes.
#[derive(Debug, Args)]
pub struct Named {
    /// An id, or as much of its beginning as no other sandbox has
    #[arg(required = true, value_name = "SANDBOX")]
    pub sandboxes: Vec<String>,
}

#[derive(Debug, Args)]
pub struct Rm {
    /// An id, or as much of its beginning as no other sandbox has
    #[arg(required_unless_present = "all", value_name = "SANDBOX")]
    pub sandboxes: Vec<String>,
    /// Every sandbox of the workspace
    #[arg(long, conflicts_with = "sandboxes")]
    pub all: bool,
}
