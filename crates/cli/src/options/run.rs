//! `sandling run`, and the sizes that `create` shares with it.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use sandling_protocol::Language;
use sandling_wire::VolumeMount;

use super::network::{Outside, Reach};
use super::parse;
use super::volumes::mount;

#[derive(Debug, Args)]
pub struct Run {
    /// The code
    #[arg(short = 'c', long = "code", value_name = "CODE", conflicts_with = "file")]
    pub code: Option<String>,
    /// A file with the code, or `-` for stdin
    #[arg(value_name = "FILE", required_unless_present = "code")]
    pub file: Option<PathBuf>,
    /// Arguments for the code
    #[arg(last = true, value_name = "ARGS")]
    pub args: Vec<String>,
    /// [default: `base`, or `code-interpreter` for Node]
    #[arg(short, long, value_name = "NAME")]
    pub template: Option<String>,
    /// By default the one that the file's name says, else Python
    #[arg(short, long, value_enum)]
    pub language: Option<LanguageChoice>,
    /// How long the code may run
    #[arg(long, default_value_t = 300, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
    /// Print one JSON object with the output, the exit code, the reason and the sandbox
    #[arg(long)]
    pub json: bool,
    /// Set a variable in the code's environment; may be repeated
    #[arg(short, long = "env", value_name = "NAME=VALUE", value_parser = parse::pair)]
    pub env: Vec<(String, String)>,
    /// Give it a volume: NAME:PATH, or NAME:PATH:ro for one that others read, too; may be repeated
    #[arg(long = "volume", value_name = "NAME:PATH[:ro]", value_parser = mount)]
    pub volumes: Vec<VolumeMount>,
    #[command(flatten)]
    pub sizes: Sizes,
    #[command(flatten)]
    pub reach: Reach,
    #[command(flatten)]
    pub outside: Outside,
    /// Bytes the code may print
    #[arg(long, default_value_t = sandling_engine::RunSpec::OUTPUT_LIMIT, value_name = "BYTES")]
    pub output_limit: u64,
    /// Before it runs, report risky shapes in the code. Advice, not a boundary
    #[arg(long)]
    pub scan: bool,
    /// Print how long it took and what it ran on, to stderr
    #[arg(short, long)]
    pub verbose: bool,
}

/// How large a sandbox is.
#[derive(Debug, Args)]
pub struct Sizes {
    /// Virtual CPUs [default: the template's]
    #[arg(long, value_name = "N")]
    pub cpus: Option<u32>,
    /// Memory in MiB [default: the template's]
    #[arg(long, value_name = "MIB")]
    pub memory: Option<u32>,
    /// Disk in MiB [default: the template's]
    #[arg(long, value_name = "MIB")]
    pub disk: Option<u32>,
    /// Processes and threads, all together [default: the template's]
    #[arg(long, value_name = "N")]
    pub pids: Option<u32>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum LanguageChoice {
    Python,
    Node,
    Bash,
}

impl From<LanguageChoice> for Language {
    fn from(choice: LanguageChoice) -> Self {
        match choice {
            LanguageChoice::Python => Language::Python,
            LanguageChoice::Node => Language::Node,
            LanguageChoice::Bash => Language::Bash,
        }
    }
}
