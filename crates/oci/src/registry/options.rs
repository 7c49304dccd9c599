//! What the caller decides: credentials, mirrors, addresses and time limits.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use sandling_proxy::UpstreamProxy;

/// Finds the credentials for a registry (`docker.io`, `localhost:5000`) or a mirror. An error says why credentials exist
/// but cannot be used. The client then continues without them, and shows the reason if the registry refuses.
pub type CredentialsProvider = Arc<dyn Fn(&str) -> Result<Option<Credentials>, String> + Send + Sync>;

/// Whether the client may connect to this address of this endpoint.
pub type AllowAddress = Arc<dyn Fn(&Endpoint, IpAddr) -> bool + Send + Sync>;

#[derive(Clone)]
pub struct RegistryOptions {
    pub credentials: CredentialsProvider,
    /// For a registry, the mirrors to ask first, in this order: `host`, `host:port` or `host:port/prefix`.
    pub mirrors: BTreeMap<String, Vec<String>>,
    /// Registries (`host` or `host:port`) that the operator allows to use `http://`. Those on loopback always may.
    pub insecure: BTreeSet<String>,
    /// Decides about every address that the client is about to connect to, except the proxy's.
    pub allow: AllowAddress,
    /// Certificates (PEM) to trust besides those of the system.
    pub extra_ca: Vec<u8>,
    pub proxy: Option<UpstreamProxy>,
    pub timeouts: Timeouts,
}

impl RegistryOptions {
    /// Anonymous, without mirrors or a proxy.
    pub fn new(allow: AllowAddress) -> Self {
        Self {
            credentials: Arc::new(|_| Ok(None)),
            mirrors: BTreeMap::new(),
            insecure: BTreeSet::new(),
            allow,
            extra_ca: Vec::new(),
            proxy: None,
            timeouts: Timeouts::default(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub host: String,
    pub port: u16,
    pub role: Role,
}

/// Why the client connects to a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The user's reference or the operator's list of mirrors names it.
    Registry,
    /// A registry names it, in a redirect or as its token server. An address where that registry itself is gets allowed
    /// without asking.
    Other,
}

#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    Basic {
        username: String,
        password: String,
    },
    /// A refresh token for the registry's token server.
    IdentityToken(String),
}

/// Never shows a password.
impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Basic { username, .. } => write!(formatter, "Basic({username:?})"),
            Self::IdentityToken(_) => formatter.write_str("IdentityToken"),
        }
    }
}

#[derive(Debug, Clone)]
pub struct Timeouts {
    /// For the name, the connection and TLS, each.
    pub connect: Duration,
    /// How long a server may send nothing.
    pub idle: Duration,
    /// For a whole manifest, configuration or token.
    pub document: Duration,
    /// A blob that arrives more slowly than this on average is given up. `document` comes on top.
    pub slowest_bytes_per_second: u64,
    /// How often a failed request or a broken download is tried again.
    pub retries: u32,
    /// The pause before the first retry. Each later one is twice as long.
    pub backoff: Duration,
    /// The longest `Retry-After` that the client waits for.
    pub longest_retry_after: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(20),
            idle: Duration::from_secs(30),
            document: Duration::from_secs(60),
            slowest_bytes_per_second: 16 * 1024,
            retries: 4,
            backoff: Duration::from_millis(300),
            longest_retry_after: Duration::from_secs(20),
        }
    }
}
