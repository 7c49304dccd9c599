//! Options of `sandling run`, and the part that `create` shares with it.

use std::path::PathBuf;

use clap::Args;
use sandling_engine::network::BadLimit;
use sandling_protocol::Language;
use sandling_wire::{CreateSandbox, DEFAULT_TEMPLATE, ModeName, VolumeMount};

use super::images::OperatorImages;
use super::network::{NetworkAccess, OperatorNetwork};
use super::parse;
use super::volumes::mount;

#[derive(Debug, Args)]
pub struct Run {
    /// Code to run
    #[arg(short = 'c', long = "code", value_name = "CODE", conflicts_with = "file")]
    pub code: Option<String>,
    /// File with the code, or `-` for stdin. It runs under its own path, with copies of the other files in its directory
    #[arg(value_name = "FILE", required_unless_present_any = ["code", "interactive"])]
    pub file: Option<PathBuf>,
    /// Copy this directory to the same path in the sandbox, without .git and files that .gitignore lists [default: the
    /// directory of FILE if it is small, without hidden files]
    #[arg(long, value_name = "DIR")]
    pub files: Option<PathBuf>,
    /// Write the files that the code has created or changed to this directory
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Install this package from PyPI first; may be repeated. Allows the sandbox to reach PyPI
    #[arg(long, value_name = "PACKAGE")]
    pub pip: Vec<String>,
    /// Install the packages in this requirements file first. Allows the sandbox to reach PyPI
    #[arg(short, long, value_name = "FILE")]
    pub requirements: Vec<PathBuf>,
    /// Open a shell in a new sandbox and delete the sandbox when the shell exits. `-it` means the same
    #[arg(short, long, conflicts_with_all = ["code", "file", "json", "out", "scan"])]
    pub interactive: bool,
    /// Arguments for the code
    #[arg(last = true, value_name = "ARGS")]
    pub args: Vec<String>,
    /// Template for the sandbox
    #[arg(short, long, default_value = DEFAULT_TEMPLATE, value_name = "NAME")]
    pub template: String,
    /// OCI image for the sandbox: a reference like python:3.12-slim, or docker-archive:FILE, oci:DIR or a path
    #[arg(long, value_name = "IMAGE", conflicts_with = "template")]
    pub image: Option<String>,
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
    #[command(flatten)]
    pub images: OperatorImages,
    /// Stop the code when it has printed this much: 512k, 10m, or a number of bytes
    #[arg(long, default_value_t = sandling_engine::RunSpec::OUTPUT_LIMIT, value_name = "SIZE", value_parser = parse::bytes)]
    pub output_limit: u64,
    #[command(flatten)]
    pub limits: CommandLimits,
    /// Warn about risky patterns in the code before running it. This is advice, not a security boundary
    #[arg(long)]
    pub scan: bool,
    /// Print timings and the accelerator to stderr
    #[arg(short, long)]
    pub verbose: bool,
}

/// The sandbox's TTL beyond the code's timeout, in case this process is killed.
const TTL_SLACK: u64 = 60;
/// How long an installation of packages may take.
pub const INSTALL_SECONDS: u64 = 900;

impl Run {
    pub fn installs_packages(&self) -> bool {
        !self.pip.is_empty() || !self.requirements.is_empty()
    }

    /// The sandbox outlives the code and the installation of its packages.
    pub fn ttl_seconds(&self) -> u64 {
        self.timeout + TTL_SLACK + if self.installs_packages() { INSTALL_SECONDS } else { 0 }
    }

    /// The request for the sandbox, which may reach PyPI if packages are to be installed.
    pub fn create_request(&self) -> Result<CreateSandbox, BadLimit> {
        let mut request = self.machine.request()?;
        if let Some(network) = request.network.as_mut().filter(|_| self.installs_packages())
            && matches!(network.mode, None | Some(ModeName::Allow))
        {
            network.allow.get_or_insert_default().push("pypi".to_owned());
        }
        Ok(request)
    }
}

/// Limits of one command.
#[derive(Debug, Clone, Copy, Args)]
pub struct CommandLimits {
    /// Stop the command when the sandbox has used this many seconds of CPU time meanwhile
    #[arg(long, value_name = "SECONDS", value_parser = parse::seconds)]
    pub cpu_time: Option<u64>,
    /// Stop the command when the sandbox uses this much more of its disk: 100m, 2g, or a number of MiB
    #[arg(long, value_name = "SIZE", value_parser = parse::mib)]
    pub disk_limit: Option<u32>,
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
    /// Memory: 512m, 2g, or a number of MiB [default: the template's]
    #[arg(long, value_name = "SIZE", value_parser = parse::mib)]
    pub memory: Option<u32>,
    /// Disk: 2g, or a number of MiB [default: the template's]
    #[arg(long, value_name = "SIZE", value_parser = parse::mib)]
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
