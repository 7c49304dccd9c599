//! What sandboxes may reach, and secrets.

use std::net::{AddrParseError, SocketAddr};

use clap::{Args, Subcommand, ValueEnum};
use ipnet::Ipv4Net;
use sandling_api::IntoWire;
use sandling_engine::NetworkConfig;
use sandling_engine::network::{BadLimit, LimitRequest};
use sandling_network::policy::{BadEntry, Entry, Mode, NoPreset, Policy, Target};
use sandling_wire::{ModeName, NetworkLimits, NetworkRequest, TlsName};

const DNS_PORT: u16 = 53;

/// What a new sandbox may reach.
#[derive(Debug, Args)]
pub struct Reach {
    /// What it may reach [default: nothing, or what --allow lists]
    #[arg(long, value_enum, value_name = "MODE")]
    pub network: Option<ModeChoice>,
    /// Let it reach a name, *.name, address, network, or what pypi, npm, crates, debian or github need; may be repeated
    #[arg(long, value_name = "NAME[:PORT]")]
    pub allow: Vec<String>,
    /// Refuse it an address or a network, whatever else it may reach; may be repeated
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    pub deny: Vec<String>,
    /// Let it use a stored secret, which it never sees; may be repeated
    #[arg(long = "secret", value_name = "NAME")]
    pub secrets: Vec<String>,
    /// Open its TLS with an authority of its own and look at every request's host
    #[arg(long)]
    pub inspect_tls: bool,
    /// Let it use less than the server allows: sent_bytes, sent_bytes_per_second, received_bytes_per_second,
    /// connections or dns_queries_per_second; may be repeated
    #[arg(long = "network-limit", value_name = "NAME=VALUE")]
    pub limits: Vec<String>,
    /// Put it in a group: its sandboxes reach each other by name
    #[arg(long, value_name = "NAME")]
    pub group: Option<String>,
    /// What the others of the group call it: NAME.internal
    #[arg(long, value_name = "NAME", requires = "group")]
    pub hostname: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ModeChoice {
    /// Nothing
    #[value(alias = "none")]
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
    /// As the server is asked for it. What was not said is left to the defaults.
    pub fn request(&self) -> Result<NetworkRequest, BadLimit> {
        Ok(NetworkRequest {
            mode: self.network.map(Into::into),
            allow: allowed(&self.allow),
            deny: listed(&self.deny),
            tls: self.inspect_tls.then_some(TlsName::Inspected),
            limits: limits(&self.limits)?,
            secrets: listed(&self.secrets),
            group: self.group.clone(),
            hostname: self.hostname.clone(),
            binding: None,
        })
    }
}

/// What an option that may be repeated lists, if it was used at all. An empty word is for a list without any.
pub fn listed(words: &[String]) -> Option<Vec<String>> {
    (!words.is_empty()).then(|| words.iter().filter(|word| !word.is_empty()).cloned().collect())
}

/// The same of what may be reached. A name of one word is more often a preset that is called otherwise.
pub fn allowed(words: &[String]) -> Option<Vec<String>> {
    for word in words.iter().filter_map(|word| single_name(word)) {
        eprintln!("sandling: {word} is taken for a host of that name; {NoPreset}");
    }
    listed(words)
}

fn single_name(word: &str) -> Option<&str> {
    let Target::Name(name) = word.parse::<Entry>().ok()?.target else { return None };
    (!name.as_str().contains('.')).then_some(word)
}

/// Limits as they are written, if there are any.
pub fn limits(texts: &[String]) -> Result<Option<NetworkLimits>, BadLimit> {
    let wish = wish(texts)?;
    Ok((!texts.is_empty()).then(|| wish.into_wire()))
}

fn wish(texts: &[String]) -> Result<LimitRequest, BadLimit> {
    let mut wish = LimitRequest::default();
    texts.iter().try_for_each(|text| wish.add(text))?;
    Ok(wish)
}

/// What the operator says about all sandboxes' networks.
#[derive(Debug, Args)]
pub struct Outside {
    /// Open a private network to sandboxes whose policy lists it, or is `open`; may be repeated
    #[arg(long, value_name = "CIDR", env = "SANDLING_NETWORK_OPEN", value_delimiter = ',')]
    pub network_open: Vec<Ipv4Net>,
    /// Ask this name server for sandboxes instead of the host's own; may be repeated
    #[arg(
        long, value_name = "ADDRESS[:PORT]", env = "SANDLING_NAME_SERVERS", value_delimiter = ',',
        value_parser = name_server,
    )]
    pub name_server: Vec<SocketAddr>,
    /// The most that each sandbox may use, and what it may use if it says nothing: sent_bytes, sent_bytes_per_second,
    /// received_bytes_per_second, connections or dns_queries_per_second; may be repeated
    #[arg(long = "network-most", value_name = "NAME=VALUE", env = "SANDLING_NETWORK_MOST", value_delimiter = ',')]
    pub network_most: Vec<String>,
}

impl Outside {
    pub fn config(&self) -> Result<NetworkConfig, BadLimit> {
        let (opened, name_servers) = (self.network_open.clone(), self.name_server.clone());
        let limits = wish(&self.network_most)?.of_operator()?;
        Ok(NetworkConfig { opened, name_servers, limits, ..NetworkConfig::default() })
    }
}

fn name_server(text: &str) -> Result<SocketAddr, AddrParseError> {
    text.parse().or_else(|_| Ok(SocketAddr::new(text.parse()?, DNS_PORT)))
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
    #[arg(required_unless_present_any = ["default", "template"])]
    pub sandbox: Option<String>,
    /// Show or change what sandboxes may reach that say nothing about it, also while they run
    #[arg(long, conflicts_with_all = ["sandbox", "template"])]
    pub default: bool,
    /// The same for those of one template; it comes first
    #[arg(long, value_name = "NAME", conflicts_with = "sandbox")]
    pub template: Option<String>,
    /// Let no sandbox reach or use more than the default, whatever it says itself; `--binding=false` takes that back
    #[arg(
        long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        conflicts_with_all = ["sandbox", "template"],
    )]
    pub binding: Option<bool>,
    /// Remove that default; of a sandbox its own policy and limits, so that it follows the defaults again
    #[arg(long, conflicts_with_all = [
        "binding", "mode", "allow", "deny", "inspect_tls", "limits", "secrets", "group", "revoke",
    ])]
    pub clear: bool,
    /// Change what it may reach, at once; with --allow only: to that list
    #[arg(long = "set", value_enum, value_name = "MODE")]
    pub mode: Option<ModeChoice>,
    /// Let it reach this, and nothing else that is not listed here; may be repeated
    #[arg(long, value_name = "NAME[:PORT]")]
    pub allow: Vec<String>,
    /// Refuse it these addresses and networks, and no others, whatever else it may reach; may be repeated
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    pub deny: Vec<String>,
    /// Open its TLS and look at every request's host; `--inspect-tls=false` takes that back
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub inspect_tls: Option<bool>,
    /// Let it use so much of the network: a limit as of `create`; may be repeated
    #[arg(long = "limit", value_name = "NAME=VALUE")]
    pub limits: Vec<String>,
    /// Give it a stored secret; may be repeated
    #[arg(long = "secret", value_name = "NAME", conflicts_with_all = ["default", "template"])]
    pub secrets: Vec<String>,
    /// Put it in a group; an empty name takes it out of the one it is in
    #[arg(long, value_name = "NAME", conflicts_with_all = ["default", "template"])]
    pub group: Option<String>,
    /// What the others of the group call it: NAME.internal
    #[arg(long, value_name = "NAME", requires = "group")]
    pub hostname: Option<String>,
    /// Take a secret away from it; may be repeated
    #[arg(long, value_name = "NAME", conflicts_with_all = ["default", "template"])]
    pub revoke: Vec<String>,
    /// Show decisions as they are made, until the sandbox ends
    #[arg(short, long, conflicts_with_all = ["default", "template"])]
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
    /// Remove a secret, and take it from all sandboxes for good
    Rm { name: String },
}
