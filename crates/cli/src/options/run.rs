//! Options of `sandling run`, and the part that `create` shares with it.

use std::path::PathBuf;

use clap::Args;
use sandling_engine::network::BadLimit;
use sandling_protocol::Language;
use sandling_wire::{CreateSandbox, VolumeMount};

use super::network::{NetworkAccess, OperatorNetwork};
use super::parse;
use super::volumes::mount;

#[derive(Debug, Args)]
pub struct Run {
    /// Code to run
    #[arg(short = 'c', long = "code", value_name = "CODE", conflicts_with = "file")]
    pub code: Option<String>,
    /// File with the code, or `-` for stdin
    #[arg(value_name = "FILE", required_unless_present = "code")]
    pub file: Option<PathBuf>,
    /// Arguments for the code
    #[arg(last = true, value_name = "ARGS")]
    pub args: Vec<String>,
    /// Template for the sandbox [default: base, or code-interpreter for Node]
    #[arg(short, long, value_name = "NAME")]
    pub template: Option<String>,
    /// Language of the code [default: by file extension, otherwise Python]
    #[arg(short, long, value_parser = parse::choice::<Language>(["python", "node", "bash"]))]
    pub language: Option<Language>,
    /// Stop the code after this many seconds
    #[arg(long, default_value_t = 300, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
    /// Print one JSON object with the output, exit code, end reason and sandbox
    #[arg(long)]
    pub json: bool,
    /// Set an environment variable for the code; may be repeated
    #[arg(short, long = "env", value_name = "NAME=VALUE", value_parser = parse::pair)]
    pub env: Vec<(String, String)>,
    #[command(flatten)]
    pub machine: MachineOptions,
    #[command(flatten)]
    pub operator: OperatorNetwork,
    /// Stop the code when it has printed this many bytes
    #[arg(long, default_value_t = sandling_engine::RunSpec::OUTPUT_LIMIT, value_name = "BYTES")]
    pub output_limit: u64,
    /// Warn about risky patterns in the code before running it. This is advice, not a security boundary
    #[arg(long)]
    pub scan: bool,
    /// Print timings and the accelerator to stderr
    #[arg(short, long)]
    pub verbose: bool,
}

/// The resources, volumes and network access of a new sandbox.
#[derive(Debug, Args)]
pub struct MachineOptions {
    /// Mount a volume; :ro mounts it read-only, so that several sandboxes can share it; may be repeated
    #[arg(long = "volume", value_name = "NAME:PATH[:ro]", value_parser = mount)]
    pub volumes: Vec<VolumeMount>,
    /// Number of virtual CPUs [default: the template's]
    #[arg(long, value_name = "N")]
    pub cpus: Option<u32>,
    /// Memory in MiB [default: the template's]
    #[arg(long, value_name = "MIB")]
    pub memory: Option<u32>,
    /// Disk in MiB [default: the template's]
    #[arg(long, value_name = "MIB")]
    pub disk: Option<u32>,
    /// Maximum number of processes and threads [default: the template's]
    #[arg(long, value_name = "N")]
    pub pids: Option<u32>,
    #[command(flatten)]
    pub network: NetworkAccess,
}

impl MachineOptions {
    /// The request for such a sandbox. Options that were not given are left to the server's defaults.
    pub fn request(&self) -> Result<CreateSandbox, BadLimit> {
        Ok(CreateSandbox {
            cpu: self.cpus,
            memory_mb: self.memory,
            disk_mb: self.disk,
            pids: self.pids,
            network: Some(self.network.request()?),
            volumes: Some(self.volumes.clone()).filter(|volumes| !volumes.is_empty()),
            ..CreateSandbox::default()
        })
    }
}
