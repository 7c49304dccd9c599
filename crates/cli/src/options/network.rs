//! What sandboxes may reach, and secrets.

use std::net::SocketAddr;

use clap::{Args, Subcommand, ValueEnum};
use ipnet::Ipv4Net;
use sandling_api::{ModeName, NetworkRequest, TlsName};
use sandling_engine::NetworkConfig;
use sandling_network::policy::{BadEntry, Entry, Mode, Policy};

/// What a new sandbox may reach.
#[derive(Debug, Args)]
pub struct Reach {
    /// What it may reach [default: nothing, or what --allow lists]
    #[arg(long, value_enum, value_name = "MODE")]
    pub network: Option<ModeChoice>,
    /// Let it reach a name, *.name, address, network, or what pypi, npm, crates, debian or github need; may be repeated
    #[arg(long, value_name = "NAME[:PORT]")]
    pub allow: Vec<String>,
    /// Let it use a stored secret, which it never sees; may be repeated
    #[arg(long = "secret", value_name = "NAME")]
    pub secrets: Vec<String>,
    /// Open its TLS with an authority of its own and look at every request's host
    #[arg(long)]
    pub inspect_tls: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ModeChoice {
    /// Nothing
    Deny,
    /// What is listed
    Allow,
    /// The public internet
    Open,
    /// The public internet; afterwards says what should be allowed
    Learn,
}

impl From<ModeChoice> for ModeName {
    fn from(choice: ModeChoice) -> Self {
        match choice {
            ModeChoice::Deny => Self::Deny,
            ModeChoice::Allow => Self::Allow,
            ModeChoice::Open => Self::Open,
            ModeChoice::Learn => Self::Learn,
        }
    }
}

impl Reach {
    /// As the server is asked for it; nothing if nothing was said.
    pub fn request(&self) -> Option<NetworkRequest> {
        let said = self.network.is_some() || !self.allow.is_empty() || !self.secrets.is_empty() || self.inspect_tls;
        said.then(|| NetworkRequest {
            mode: self.network.map(Into::into),
            allow: Some(self.allow.clone()),
            tls: self.inspect_tls.then_some(TlsName::Inspected),
            secrets: Some(self.secrets.clone()),
        })
    }
}

/// What the operator says about all sandboxes' networks.
#[derive(Debug, Args)]
pub struct Outside {
    /// Open a private network to sandboxes whose policy lists it; may be repeated
    #[arg(long, value_name = "CIDR", env = "SANDLING_NETWORK_OPEN", value_delimiter = ',')]
    pub network_open: Vec<Ipv4Net>,
    /// Ask this name server for sandboxes instead of the host's own; may be repeated
    #[arg(long, value_name = "ADDRESS:PORT", env = "SANDLING_NAME_SERVERS", value_delimiter = ',')]
    pub name_server: Vec<SocketAddr>,
}

impl Outside {
    pub fn config(&self) -> NetworkConfig {
        let (opened, name_servers) = (self.network_open.clone(), self.name_server.clone());
        NetworkConfig { opened, name_servers, ..NetworkConfig::default() }
    }
}

/// A policy in one word or as a list.
pub fn policy(text: &str) -> Result<Policy, String> {
    match text {
        "deny" => Ok(Policy::default()),
        "open" => Ok(Policy::of(Mode::Open)),
        list => {
            let entries: Result<Vec<Entry>, BadEntry> = list.split(',').map(str::parse).collect();
            Ok(Policy::allow(entries.map_err(|error| error.to_string())?))
        }
    }
}

#[derive(Debug, Args)]
pub struct Network {
    /// An id, or as much of its beginning as no other sandbox has
    pub sandbox: String,
    /// Change what it may reach, at once; with --allow only: to that list
    #[arg(long = "set", value_enum, value_name = "MODE")]
    pub mode: Option<ModeChoice>,
    /// Let it reach this, and nothing else that is not listed here; may be repeated
    #[arg(long, value_name = "NAME[:PORT]")]
    pub allow: Vec<String>,
    /// Take a secret away from it; may be repeated
    #[arg(long, value_name = "NAME")]
    pub revoke: Vec<String>,
    /// Show decisions as they are made, until the sandbox ends
    #[arg(short, long)]
    pub follow: bool,
    /// So many of the newest decisions [default: 20]
    #[arg(short = 'n', long, value_name = "N")]
    pub tail: Option<u32>,
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Secret {
    #[command(subcommand)]
    pub command: SecretCommand,
}

#[derive(Debug, Subcommand)]
pub enum SecretCommand {
    /// Store a secret, or replace it; its value is read from stdin
    #[command(after_help = "Example:\n  sandling secret set OPENAI_API_KEY --host api.openai.com <key.txt")]
    Set {
        /// Also of the variable that holds its placeholder in sandboxes
        name: String,
        /// Where requests may carry it: a name or *.name; may be repeated
        #[arg(long = "host", required = true, value_name = "NAME")]
        hosts: Vec<String>,
    },
    /// List secrets, without their values
    Ls {
        #[arg(long)]
        json: bool,
    },
    /// Remove a secret; no sandbox can use it any more
    Rm { name: String },
}
