//! Options for network policies and secrets.

use std::net::{AddrParseError, SocketAddr};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use ipnet::Ipv4Net;
use sandling_api::IntoWire;
use sandling_engine::NetworkConfig;
use sandling_engine::network::{BadLimit, LimitRequest};
use sandling_network::policy::{BadEntry, Entry, Mode, NoPreset, Policy, Target};
use sandling_proxy::{BadProxy, UpstreamProxy};
use sandling_wire::{ModeName, NetworkLimits, NetworkRequest, TlsName};

use super::Common;
use crate::trust;

const DNS_PORT: u16 = 53;

/// Network access of a new sandbox.
#[derive(Debug, Args)]
pub struct NetworkAccess {
    /// Network mode [default: allow if --allow is given, otherwise the workspace's default or deny]
    #[arg(long, value_parser = mode(), value_name = "MODE")]
    pub network: Option<ModeName>,
    /// Allow a host name, *.name, address, network, or preset (pypi, npm, crates, debian, github, go, maven,
    /// rubygems, huggingface, conda); may be repeated
    #[arg(long, value_name = "NAME[:PORT]")]
    pub allow: Vec<String>,
    /// Deny an address or network, even if something else allows it; may be repeated
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    pub deny: Vec<String>,
    /// Let the sandbox use a stored secret without seeing its value; may be repeated
    #[arg(long = "secret", value_name = "NAME")]
    pub secrets: Vec<String>,
    /// Intercept TLS with a per-sandbox certificate authority and check the host of every request
    #[arg(long)]
    pub inspect_tls: bool,
    /// Set a lower limit than the server's: sent_bytes, sent_bytes_per_second, received_bytes_per_second, connections
    /// or dns_queries_per_second; may be repeated
    #[arg(long = "network-limit", value_name = "NAME=VALUE")]
    pub limits: Vec<String>,
    /// Add the sandbox to a group; members can reach each other by name
    #[arg(long, value_name = "NAME")]
    pub group: Option<String>,
    /// Host name in the group; other members reach it as NAME.internal
    #[arg(long, value_name = "NAME", requires = "group")]
    pub hostname: Option<String>,
}

fn mode() -> impl TypedValueParser<Value = ModeName> {
    let values = [
        PossibleValue::new("deny").alias("none").help("No network access"),
        PossibleValue::new("allow").help("Only the allow-list"),
        PossibleValue::new("open").help("The whole public internet"),
        PossibleValue::new("learn").help("The whole public internet; afterwards suggests an allow-list"),
    ];
    PossibleValuesParser::new(values).map(|name| match name.as_str() {
        "allow" => ModeName::Allow,
        "open" => ModeName::Open,
        "learn" => ModeName::Learn,
        _ => ModeName::Deny,
    })
}

impl NetworkAccess {
    /// The request to the server. Options that were not given are left to its defaults.
    pub fn request(&self) -> Result<NetworkRequest, BadLimit> {
        Ok(NetworkRequest {
            mode: self.network,
            allow: given_allow_list(&self.allow),
            deny: given_list(&self.deny),
            tls: self.inspect_tls.then_some(TlsName::Inspected),
            limits: limits(&self.limits)?,
            secrets: given_list(&self.secrets),
            group: self.group.clone(),
            hostname: self.hostname.clone(),
            binding: None,
        })
    }
}

/// The values of a repeatable option, or `None` if it was not given. One empty value means an empty list.
pub fn given_list(words: &[String]) -> Option<Vec<String>> {
    (!words.is_empty()).then(|| words.iter().filter(|word| !word.is_empty()).cloned().collect())
}

/// The same for `--allow`. Warns about names without a dot, since most of them are misspelled presets.
pub fn given_allow_list(words: &[String]) -> Option<Vec<String>> {
    for word in words.iter().filter_map(|word| name_without_dot(word)) {
        eprintln!("sandling: treating {word} as a host name; {NoPreset}");
    }
    given_list(words)
}

fn name_without_dot(word: &str) -> Option<&str> {
    let Target::Name(name) = word.parse::<Entry>().ok()?.target else { return None };
    (!name.as_str().contains('.')).then_some(word)
}

/// Parses limits; `None` if there are none.
pub fn limits(texts: &[String]) -> Result<Option<NetworkLimits>, BadLimit> {
    let request = limit_request(texts)?;
    Ok((!texts.is_empty()).then(|| request.into_wire()))
}

fn limit_request(texts: &[String]) -> Result<LimitRequest, BadLimit> {
    let mut request = LimitRequest::default();
    texts.iter().try_for_each(|text| request.add(text))?;
    Ok(request)
}

/// The operator's settings for the networks of all sandboxes.
#[derive(Debug, Args)]
pub struct OperatorNetwork {
    /// Treat a private network as public, so that policies may allow it; may be repeated
    #[arg(long, value_name = "CIDR", env = "SANDLING_NETWORK_OPEN", value_delimiter = ',')]
    pub network_open: Vec<Ipv4Net>,
    /// Resolve sandboxes' DNS queries with this server instead of the host's; may be repeated
    #[arg(
        long, value_name = "ADDRESS[:PORT]", env = "SANDLING_NAME_SERVERS", value_delimiter = ',',
        value_parser = name_server,
    )]
    pub name_server: Vec<SocketAddr>,
    /// Let sandboxes reach the internet through this HTTP proxy, such as http://proxy.example.org:3128; the hosts in
    /// NO_PROXY are reached directly
    #[arg(long, value_name = "URL", env = "SANDLING_NETWORK_PROXY", value_parser = upstream_proxy)]
    pub network_proxy: Option<UpstreamProxy>,
    /// Set the maximum and default limit of every sandbox: sent_bytes, sent_bytes_per_second,
    /// received_bytes_per_second, connections or dns_queries_per_second; may be repeated
    #[arg(long = "network-most", value_name = "NAME=VALUE", env = "SANDLING_NETWORK_MOST", value_delimiter = ',')]
    pub network_most: Vec<String>,
}

impl OperatorNetwork {
    pub fn config(&self, common: &Common) -> anyhow::Result<NetworkConfig> {
        let (opened, name_servers) = (self.network_open.clone(), self.name_server.clone());
        let limits = limit_request(&self.network_most)?.of_operator()?;
        let proxy = self.network_proxy.clone();
        let extra_ca = common.ca.as_deref().map(trust::read).transpose()?.unwrap_or_default();
        Ok(NetworkConfig { opened, name_servers, proxy, extra_ca, limits, ..NetworkConfig::default() })
    }
}

/// What the steps of template builds may reach.
#[derive(Debug, Args)]
pub struct BuildNetwork {
    /// Network policy for template build steps: deny, open, or a comma-separated allow-list
    #[arg(
        long, value_name = "LIST", env = "SANDLING_BUILD_NETWORK", default_value = "pypi,npm,debian,github",
        value_parser = policy,
    )]
    pub build_network: Policy,
}

fn upstream_proxy(text: &str) -> Result<UpstreamProxy, BadProxy> {
    UpstreamProxy::with_exceptions_of_environment(text)
}

fn name_server(text: &str) -> Result<SocketAddr, AddrParseError> {
    text.parse().or_else(|_| Ok(SocketAddr::new(text.parse()?, DNS_PORT)))
}

/// Parses `deny`, `open` or a comma-separated allow-list.
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
    /// Sandbox ID, a unique prefix of it, or its name
    #[arg(required_unless_present_any = ["default", "template"])]
    pub sandbox: Option<String>,
    /// Show or change the default for sandboxes without a policy of their own, including running ones
    #[arg(long, conflicts_with_all = ["sandbox", "template"])]
    pub default: bool,
    /// Show or change the default for one template; it takes precedence over --default
    #[arg(long, value_name = "NAME", conflicts_with = "sandbox")]
    pub template: Option<String>,
    /// Make the default the upper limit for every sandbox; `--binding=false` turns this off
    #[arg(
        long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        conflicts_with_all = ["sandbox", "template"],
    )]
    pub binding: Option<bool>,
    /// Remove the default, or a sandbox's own policy and limits so that it follows the defaults again
    #[arg(long, conflicts_with_all = [
        "binding", "mode", "allow", "only", "deny", "inspect_tls", "limits", "secrets", "group", "revoke",
    ])]
    pub clear: bool,
    /// Change the network mode, effective immediately [default: allow if --allow or --only is given]
    #[arg(long = "set", value_parser = mode(), value_name = "MODE")]
    pub mode: Option<ModeName>,
    /// Add an entry to the allow-list; may be repeated
    #[arg(long, value_name = "NAME[:PORT]")]
    pub allow: Vec<String>,
    /// Replace the allow-list with these entries; may be repeated
    #[arg(long, value_name = "NAME[:PORT]", conflicts_with = "allow")]
    pub only: Vec<String>,
    /// Replace the deny-list with these addresses and networks; may be repeated
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    pub deny: Vec<String>,
    /// Intercept TLS and check the host of every request; `--inspect-tls=false` turns this off
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub inspect_tls: Option<bool>,
    /// Set a network limit, with the names of `create --network-limit`; may be repeated
    #[arg(long = "limit", value_name = "NAME=VALUE")]
    pub limits: Vec<String>,
    /// Let the sandbox use a stored secret; may be repeated
    #[arg(long = "secret", value_name = "NAME", conflicts_with_all = ["default", "template"])]
    pub secrets: Vec<String>,
    /// Add the sandbox to a group; an empty name removes it from its group
    #[arg(long, value_name = "NAME", conflicts_with_all = ["default", "template"])]
    pub group: Option<String>,
    /// Host name in the group; other members reach it as NAME.internal
    #[arg(long, value_name = "NAME", requires = "group")]
    pub hostname: Option<String>,
    /// Revoke the sandbox's access to a secret; may be repeated
    #[arg(long, value_name = "NAME", conflicts_with_all = ["default", "template"])]
    pub revoke: Vec<String>,
    /// Print the gateway's decisions live until the sandbox ends
    #[arg(short, long, conflicts_with_all = ["default", "template"])]
    pub follow: bool,
    /// Show the newest N decisions [default: 20]
    #[arg(short = 'n', long, value_name = "N")]
    pub tail: Option<u32>,
    #[arg(long, help = "Print JSON")]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum SecretCommand {
    /// Store or replace a secret; its value is read from stdin
    #[command(
        after_help = "The gateway puts the value only where --header, --query and --basic allow it, and refuses requests \
                      with the placeholder elsewhere. Each may be repeated. The default is --header 'Authorization: \
                      Bearer'.\n\nExamples:\n  sandling secret set OPENAI_API_KEY --host api.openai.com <key.txt\n  \
                      sandling secret set ANTHROPIC_API_KEY --host api.anthropic.com --header x-api-key <key.txt\n  \
                      sandling secret set GITHUB_TOKEN --host github.com --basic <key.txt"
    )]
    Set {
        /// Name of the secret, and of the environment variable that holds its placeholder in sandboxes
        name: String,
        /// Host whose requests may carry the secret: a name or *.name; may be repeated
        #[arg(long = "host", required = true, value_name = "NAME")]
        hosts: Vec<String>,
        /// Place the secret in this header, after PREFIX if given
        #[arg(long = "header", value_name = "NAME[: PREFIX]")]
        headers: Vec<String>,
        /// Place the secret in this key of the query
        #[arg(long = "query", value_name = "KEY")]
        queries: Vec<String>,
        /// Place the secret in basic authentication, as the user or the password
        #[arg(long)]
        basic: bool,
    },
    /// List secrets; their values are not shown
    Ls {
        #[arg(long, help = "Print JSON")]
        json: bool,
    },
    /// Remove a secret and revoke it from all sandboxes permanently
    Rm { name: String },
}
