//! Options of `sandling agent` and `sandling mcp`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use sandling_agent::Api;
use sandling_tools::DesktopTools;
use sandling_wire::DEFAULT_TEMPLATE;

use super::parse;
use super::run::MachineOptions;

/// The template whose sandboxes have a desktop.
pub const DESKTOP_TEMPLATE: &str = "desktop";

#[derive(Debug, Args)]
pub struct Mcp {
    /// Serve streamable HTTP at http://ADDRESS:PORT/mcp instead of stdin. Clients need the server's token
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub http: Option<SocketAddr>,
    /// Template for the sandboxes [default: code-interpreter, or desktop with --desktop]
    #[arg(long, value_name = "NAME")]
    pub template: Option<String>,
    /// Offer tools for the screen, the mouse and the keyboard, too. Implied by --template desktop
    #[arg(long)]
    pub desktop: bool,
    /// OCI image for the sandboxes instead of a template, e.g. python:3.12-slim
    #[arg(long, value_name = "REFERENCE", conflicts_with = "template")]
    pub image: Option<String>,
    /// Copy this project into each new sandbox. Skips .git and files that .gitignore lists
    #[arg(long, value_name = "DIR")]
    pub files: Option<PathBuf>,
    /// Run this command in each new sandbox first, e.g. to install dependencies
    #[arg(long, value_name = "COMMAND")]
    pub setup: Option<String>,
    #[command(flatten)]
    pub machine: MachineOptions,
    /// Default and maximum time for one tool call
    #[arg(long, default_value = "5m", value_name = "TIME", value_parser = parse::seconds)]
    pub timeout: u64,
    /// Remove a sandbox that has been idle for this long
    #[arg(long, default_value = "30m", value_name = "TIME", value_parser = parse::seconds)]
    pub idle: u64,
    /// Create a checkpoint before every step, so that each step can be undone. By default the model creates its own
    #[arg(long)]
    pub checkpoints: bool,
    /// Show the model at most this many bytes per output stream; longer output loses its middle
    #[arg(long, default_value_t = 20_000, value_name = "BYTES")]
    pub max_output: usize,
}

impl Mcp {
    pub fn template(&self) -> &str {
        let usual = if self.desktop { DESKTOP_TEMPLATE } else { DEFAULT_TEMPLATE };
        self.template.as_deref().unwrap_or(usual)
    }

    pub fn desktop_tools(&self) -> DesktopTools {
        let has_desktop = self.desktop || self.template.as_deref() == Some(DESKTOP_TEMPLATE);
        if has_desktop { DesktopTools::Offered } else { DesktopTools::Hidden }
    }
}

#[derive(Debug, Args)]
pub struct Agent {
    /// Task for the model
    pub task: String,
    /// Run a coding agent in the sandbox instead of the built-in loop: claude, codex, or a shell command that gets the
    /// task as its last argument. It can reach only the model's server and never sees the API key
    #[arg(long, value_name = "CLI", conflicts_with_all = ["max_tokens", "max_cost"])]
    pub engine: Option<String>,
    /// Model API to use [default: anthropic if ANTHROPIC_API_KEY is set, else chat]
    #[arg(long, value_name = "anthropic|chat|responses")]
    pub api: Option<Api>,
    /// Model name [default: ANTHROPIC_MODEL or OPENAI_MODEL]
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Let the model use a desktop: look at the screen, click and type
    #[arg(long, conflicts_with = "engine")]
    pub desktop: bool,
    /// Template for the sandbox [default: code-interpreter, agent with --engine, or desktop with --desktop]
    #[arg(short, long, value_name = "NAME")]
    pub template: Option<String>,
    /// OCI image for the sandbox instead of a template, e.g. python:3.12-slim
    #[arg(long, value_name = "REFERENCE", conflicts_with = "template")]
    pub image: Option<String>,
    /// Copy this project into the sandbox and show the changes afterwards. Skips .git and files that .gitignore lists
    #[arg(long, value_name = "DIR")]
    pub files: Option<PathBuf>,
    /// Apply the changes to DIR, after showing them and asking for confirmation
    #[arg(long, requires = "files")]
    pub apply: bool,
    /// Apply without asking for confirmation
    #[arg(short, long, requires = "apply")]
    pub yes: bool,
    /// Run this command in the sandbox first, e.g. to install dependencies
    #[arg(long, value_name = "COMMAND")]
    pub setup: Option<String>,
    #[command(flatten)]
    pub machine: MachineOptions,
    /// Fork the sandbox N times, make one attempt in each fork, and keep the best attempt
    #[arg(long, value_name = "N", requires = "check", value_parser = clap::value_parser!(u8).range(2..=16))]
    pub best_of: Option<u8>,
    /// Command that judges an attempt: exit code 0 passes, and a number at the end of its output breaks ties
    #[arg(long, value_name = "COMMAND")]
    pub check: Option<String>,
    #[command(flatten)]
    pub budget: AgentBudget,
    /// Do not stream the model's answers
    #[arg(long)]
    pub no_stream: bool,
    /// Write the transcript to this file, one JSON object per line [default: a file in the home directory]
    #[arg(long, value_name = "FILE")]
    pub transcript: Option<PathBuf>,
    /// Print only the answer
    #[arg(short, long)]
    pub quiet: bool,
}

/// Limits of one run of the agent loop. With --best-of, each attempt has these limits.
#[derive(Debug, Args)]
pub struct AgentBudget {
    /// Maximum number of requests to the model
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_steps: u32,
    /// Maximum total time
    #[arg(long, default_value = "30m", value_name = "TIME", value_parser = parse::seconds)]
    pub max_time: u64,
    /// Maximum number of tokens, input and output together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_tokens: Option<u64>,
    /// Maximum cost in dollars; needs --price
    #[arg(long, value_name = "DOLLARS", requires = "price", value_parser = parse::dollars)]
    pub max_cost: Option<f64>,
    /// Price in dollars per million input and output tokens
    #[arg(long, value_name = "IN,OUT", value_parser = parse::prices)]
    pub price: Option<(f64, f64)>,
    /// Timeout of each command
    #[arg(long, default_value = "5m", value_name = "TIME", value_parser = parse::seconds)]
    pub command_timeout: u64,
}
