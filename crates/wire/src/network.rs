//! What sandboxes may reach, as clients say it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a sandbox may reach. Without it, it follows its template's default, then its workspace's; else nothing.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkRequest {
    /// Absent: `allow` if anything is listed, `deny` if the list is empty.
    pub mode: Option<ModeName>,
    /// Names, `*.name`, addresses, networks and presets (`pypi`, `npm`, `crates`, `debian`, `github`), each with ports
    /// after a colon if other than usual.
    #[schema(max_items = 512, example = json!(["pypi", "example.com", "*.example.org:8443"]))]
    pub allow: Option<Vec<String>>,
    /// Addresses and networks, with ports if not all, that are refused whatever else is allowed.
    #[schema(max_items = 512, example = json!(["203.0.113.0/24"]))]
    pub deny: Option<Vec<String>>,
    pub tls: Option<TlsName>,
    pub limits: Option<NetworkLimits>,
    /// Secrets of the workspace that the sandbox may use, by name. In a change: all that it has from then on.
    #[schema(max_items = 32)]
    pub secrets: Option<Vec<String>>,
    /// A group of sandboxes that reach each other by name. Empty in a change: it leaves the one it is in.
    #[schema(pattern = "^[a-z0-9-]{0,40}$", example = "crawl")]
    pub group: Option<String>,
    /// What the others of the group call it: `HOSTNAME.internal`. In any case `ID.internal`.
    #[schema(pattern = "^[a-z0-9-]{1,40}$", example = "database")]
    pub hostname: Option<String>,
    /// Of a workspace's default only: whether it is the most that any of its sandboxes may reach and use, whatever they
    /// and their templates say.
    pub binding: Option<bool>,
}

/// How much of the network a sandbox may use. What is absent is the server's own limit, which is also the most of each.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkLimits {
    /// Bytes that it may send in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1024)]
    pub sent_bytes_per_second: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1024)]
    pub received_bytes_per_second: Option<u64>,
    /// Connections at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub connections: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub dns_queries_per_second: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ModeName {
    /// Nothing.
    Deny,
    /// What is listed.
    Allow,
    /// The public internet.
    Open,
    /// The same, and what was used is written down as a policy.
    Learn,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TlsName {
    /// TLS passes as it is, but for hosts that have a secret.
    Sealed,
    /// TLS is opened with an authority of the sandbox's own, and each request's host is looked at.
    Inspected,
}
