//! Commands about who may do what.

use clap::{Args, Subcommand, ValueEnum};
use sandling_wire::ScopeName;

use super::parse;

#[derive(Debug, Args)]
pub struct Token {
    #[command(subcommand)]
    pub command: TokenCommand,
    /// Of another workspace; for operators
    #[arg(long, global = true, value_name = "NAME")]
    pub workspace: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token, and print it: it is shown this one time
    #[command(after_help = "Example:\n  sandling token create ci --scope run --days 30")]
    Create {
        /// For people
        name: String,
        /// Each contains those before it [default: that of the token you use]
        #[arg(long, value_enum)]
        scope: Option<ScopeChoice>,
        /// How long it works [default: for ever]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=3660))]
        days: Option<u32>,
        #[arg(long)]
        json: bool,
    },
    /// List tokens, without their secrets
    Ls {
        #[arg(long)]
        json: bool,
    },
    /// Print the token that you use now, as the variables that a client reads
    #[command(after_help = "Example:\n  eval \"$(sandling token show --for pandastack)\"")]
    Show {
        /// Whose clients read the variables [default: Sandling's own]
        #[arg(long = "for", value_enum, value_name = "CLIENT")]
        client: Option<ClientChoice>,
    },
    /// Revoke a token; it stops working at once
    Rm {
        /// Its beginning, as `token ls` shows it
        prefix: String,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum ClientChoice {
    Pandastack,
    E2b,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum ScopeChoice {
    Read,
    Run,
    Admin,
    Operator,
}

impl From<ScopeChoice> for ScopeName {
    fn from(choice: ScopeChoice) -> Self {
        match choice {
            ScopeChoice::Read => Self::Read,
            ScopeChoice::Run => Self::Run,
            ScopeChoice::Admin => Self::Admin,
            ScopeChoice::Operator => Self::Operator,
        }
    }
}

#[derive(Debug, Args)]
pub struct Quota {
    /// Of another workspace; for operators
    #[arg(long, value_name = "NAME")]
    pub workspace: Option<String>,
    /// Change a limit: sandboxes, cpu, memory_mb, disk_mb or creates_per_minute; for operators
    #[arg(long, value_name = "NAME=N|none", value_parser = parse::limit)]
    pub set: Vec<(String, Option<u32>)>,
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Audit {
    /// Only from this time on, such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME")]
    pub since: Option<jiff::Timestamp>,
    /// Only what follows this number
    #[arg(long, value_name = "NUMBER")]
    pub after: Option<i64>,
    /// At most so many
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub limit: u32,
    /// Of another workspace; for operators
    #[arg(long, value_name = "NAME")]
    pub workspace: Option<String>,
    /// Show what was run and what it printed instead, for the entry of this number
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["since", "after", "workspace"])]
    pub recording: Option<i64>,
    #[arg(long)]
    pub json: bool,
}
