//! Options of the commands for tokens, quotas and the audit log.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use sandling_wire::ScopeName;

use super::parse;

#[derive(Debug, Subcommand)]
pub enum WorkspaceCommand {
    /// Create a workspace
    Create {
        name: String,
        #[arg(long, help = "Print JSON")]
        json: bool,
    },
    /// List workspaces
    Ls {
        #[arg(long, help = "Print JSON")]
        json: bool,
    },
    /// Delete workspaces with their volumes and tokens; fails while a workspace has sandboxes
    Rm {
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub struct Token {
    #[command(subcommand)]
    pub command: TokenCommand,
    /// Use another workspace (operators only)
    #[arg(long, global = true, value_name = "NAME")]
    pub workspace: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Create a token and print it; the token is shown only once
    #[command(after_help = "Example:\n  sandling token create ci --scope run --days 30")]
    Create {
        /// Descriptive name
        name: String,
        /// What the token permits; each scope includes the ones before it
        #[arg(long, default_value = "read", value_parser = parse::choice::<ScopeName>(["read", "run", "admin", "operator"]))]
        scope: ScopeName,
        /// Expire the token after N days [default: never]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=3660))]
        days: Option<u32>,
        #[arg(long, help = "Print JSON")]
        json: bool,
    },
    /// List tokens; their secret parts are not shown
    Ls {
        #[arg(long, help = "Print JSON")]
        json: bool,
    },
    /// Print your current token as shell commands that set a client's environment variables
    #[command(after_help = "Example:\n  eval \"$(sandling token show --for pandastack)\"")]
    Show {
        /// Print the variables of this client [default: Sandling's own]
        #[arg(long = "for", value_enum, value_name = "CLIENT")]
        client: Option<ClientChoice>,
    },
    /// Revoke a token, effective immediately
    Rm {
        /// Token prefix, as shown by `token ls`
        prefix: String,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum ClientChoice {
    Pandastack,
    E2b,
}

#[derive(Debug, Args)]
pub struct Quota {
    /// Use another workspace (operators only)
    #[arg(long, value_name = "NAME")]
    pub workspace: Option<String>,
    /// Change a limit: sandboxes, cpu, memory_mb, disk_mb, creates_per_minute, requests_per_second or open_requests
    /// (operators only); may be repeated
    #[arg(long, value_name = "NAME=N|none", value_parser = parse::limit)]
    pub set: Vec<(String, Option<u32>)>,
    #[arg(long, help = "Print JSON")]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Audit {
    #[command(subcommand)]
    pub command: Option<AuditCommand>,
    /// Show only entries since this time, e.g. 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME")]
    pub since: Option<jiff::Timestamp>,
    /// Show only entries after this entry number (in a fleet, with --node)
    #[arg(long, value_name = "NUMBER")]
    pub after: Option<i64>,
    /// Show at most N entries
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub limit: u32,
    /// Use another workspace (operators only)
    #[arg(long, value_name = "NAME")]
    pub workspace: Option<String>,
    /// Show the recorded code and output of this entry instead of the list
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["since", "after", "workspace"])]
    pub recording: Option<i64>,
    /// In a fleet: show only what this node has
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    #[arg(long, help = "Print JSON")]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Check the hash chains of the audit log; fails if one is broken
    #[command(after_help = "Example:\n  sandling audit verify --file /var/log/sandling/audit.jsonl")]
    Verify {
        /// Check only this workspace (operators only) [default: all for operators, otherwise your own]
        #[arg(long, value_name = "NAME")]
        workspace: Option<String>,
        /// Check a file that `serve --audit-file` wrote, and compare the server's log with it
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// In a fleet: check only the chains of this node, which must be the one that wrote the file
        #[arg(long, value_name = "NAME")]
        node: Option<String>,
        /// With --file: check the file alone, without a server
        #[arg(long, requires = "file")]
        offline: bool,
        #[arg(long, help = "Print JSON")]
        json: bool,
    },
}
