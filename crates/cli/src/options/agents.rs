//! Commands for agents.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use sandling_agent::Api;

use super::parse;

#[derive(Debug, Args)]
pub struct Mcp {
    /// Serve streamable HTTP at /mcp there, to whoever shows the server's token, instead of one client on stdin
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub http: Option<SocketAddr>,
    /// The template of the sandboxes
    #[arg(long, default_value = "base", value_name = "NAME")]
    pub template: String,
    /// The deadline of every run, and the longest that a model can ask for
    #[arg(long, default_value = "5m", value_name = "TIME", value_parser = parse::seconds)]
    pub timeout: u64,
    /// A sandbox that nobody has used for so long ends
    #[arg(long, default_value = "30m", value_name = "TIME", value_parser = parse::seconds)]
    pub idle: u64,
    /// Make a checkpoint before every step, so that each can be undone; without it, a model makes its own
    #[arg(long)]
    pub checkpoints: bool,
    /// Bytes of each stream that a model is shown; the middle of more is cut
    #[arg(long, default_value_t = 20_000, value_name = "BYTES")]
    pub max_output: usize,
}

#[derive(Debug, Args)]
pub struct Agent {
    /// What is to be done
    pub task: String,
    /// Let a command line do it, in the sandbox, instead of our loop: claude, codex, or a shell command that is given
    /// the task as its last argument. It reaches the model's server only, and never has the key
    #[arg(long, value_name = "CLI", conflicts_with_all = ["max_tokens", "max_cost"])]
    pub engine: Option<String>,
    /// The API to speak [default: anthropic if ANTHROPIC_API_KEY is set, else chat]
    #[arg(long, value_name = "anthropic|chat|responses")]
    pub api: Option<Api>,
    /// The model [default: ANTHROPIC_MODEL or OPENAI_MODEL]
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// The sandbox's template [default: base, or agent with --engine]
    #[arg(short, long, value_name = "NAME")]
    pub template: Option<String>,
    /// Copy this project into the sandbox, without .git and what .gitignore names, and show what was changed
    #[arg(long, value_name = "DIR")]
    pub files: Option<PathBuf>,
    /// Bring the changes back, after showing them and asking
    #[arg(long, requires = "files")]
    pub apply: bool,
    /// Do not ask
    #[arg(short, long, requires = "apply")]
    pub yes: bool,
    /// Run this in the sandbox first, e.g. to install what the task needs
    #[arg(long, value_name = "COMMAND")]
    pub setup: Option<String>,
    /// Fork the sandbox so often, make an attempt in each fork, and take the best
    #[arg(long, value_name = "N", requires = "check", value_parser = clap::value_parser!(u8).range(2..=16))]
    pub best_of: Option<u8>,
    /// What an attempt is judged by: it passes with 0; a number at the end of its output counts among equals
    #[arg(long, value_name = "COMMAND")]
    pub check: Option<String>,
    #[command(flatten)]
    pub budget: AgentBudget,
    /// Ask for whole answers instead of following them
    #[arg(long)]
    pub no_stream: bool,
    /// Where to keep the transcript, a line of JSON for everything that happens [default: in the home]
    #[arg(long, value_name = "FILE")]
    pub transcript: Option<PathBuf>,
    /// Show the answer only
    #[arg(short, long)]
    pub quiet: bool,
}

/// What a loop may use; with --best-of, each attempt.
#[derive(Debug, Args)]
pub struct AgentBudget {
    /// Requests to the model
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_steps: u32,
    /// Time in all
    #[arg(long, default_value = "30m", value_name = "TIME", value_parser = parse::seconds)]
    pub max_time: u64,
    /// Tokens, read and written together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_tokens: Option<u64>,
    /// Dollars; needs --price
    #[arg(long, value_name = "DOLLARS", requires = "price", value_parser = parse::dollars)]
    pub max_cost: Option<f64>,
    /// Dollars for a million tokens, read and written
    #[arg(long, value_name = "IN,OUT", value_parser = parse::prices)]
    pub price: Option<(f64, f64)>,
    /// The deadline of every command
    #[arg(long, default_value = "5m", value_name = "TIME", value_parser = parse::seconds)]
    pub command_timeout: u64,
}
