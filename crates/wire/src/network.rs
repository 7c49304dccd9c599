//! Network policies in requests.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a sandbox may reach. If absent, its template's default applies, then its workspace's, else nothing is allowed.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkRequest {
    /// If absent: `allow` if anything is listed, `deny` if the list is empty.
    pub mode: Option<ModeName>,
    /// Names, `*.name`, addresses, networks and presets (`pypi`, `npm`, `crates`, `debian`, `github`, `go`, `maven`,
    /// `rubygems`, `huggingface`, `conda`), each with ports
    /// after a colon if other than usual.
    #[schema(max_items = 512, example = json!(["pypi", "example.com", "*.example.org:8443"]))]
    pub allow: Option<Vec<String>>,
    /// Addresses and networks, optionally with ports, that are refused whatever else is allowed.
    #[schema(max_items = 512, example = json!(["203.0.113.0/24"]))]
    pub deny: Option<Vec<String>>,
    pub tls: Option<TlsName>,
    pub limits: Option<NetworkLimits>,
    /// Names of the workspace's secrets that the sandbox may use. In a change, the list replaces the old one.
    #[schema(max_items = 32)]
    pub secrets: Option<Vec<String>>,
    /// A group of sandboxes that reach each other by name. In a change, an empty name leaves the group.
    #[schema(pattern = "^[a-z0-9-]{0,40}$", example = "crawl")]
    pub group: Option<String>,
    /// Its name in the group: `HOSTNAME.internal`. `ID.internal` always works.
    #[schema(pattern = "^[a-z0-9-]{1,40}$", example = "database")]
    pub hostname: Option<String>,
    /// Only for a workspace's default: whether it limits all sandboxes of the workspace, whatever their own policy or
    /// their template's default says.
    pub binding: Option<bool>,
}

/// Limits of network use. If a field is absent, the server's limit applies, which is also the maximum.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkLimits {
    /// Bytes that it may send in total.
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
    /// No network.
    Deny,
    /// Only the listed destinations.
    Allow,
    /// The public internet.
    Open,
    /// The public internet; the destinations that were used are recorded as a policy.
    Learn,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TlsName {
    /// TLS passes unopened, except to hosts of a secret.
    Sealed,
    /// The gateway opens TLS with a certificate authority of the sandbox and checks the host of each request.
    Inspected,
}
