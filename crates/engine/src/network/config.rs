//! What the operator says about all sandboxes' networks, and what all gateways share.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use ipnet::Ipv4Net;
use sandling_network::policy::{Entry, Policy, Ports, Preset, Target};
use sandling_network::{
    Authority, HostName, Interception, Limits, ResolveError, Resolved, Resolver, SystemResolver, Totals, TrustRoots,
};
use sandling_proxy::UpstreamProxy;

type Resolving<'a> = std::pin::Pin<Box<dyn Future<Output = Result<Resolved, ResolveError>> + Send + 'a>>;

/// What the operator says about all sandboxes' networks.
#[derive(Debug, Clone)]
pub struct NetworkConfig {
    /// Networks outside the public internet that policies may allow. Only the operator can open one.
    pub opened: Vec<Ipv4Net>,
    /// Name servers to ask instead of the host's own.
    pub name_servers: Vec<SocketAddr>,
    /// The HTTP proxy through which sandboxes reach the internet.
    pub proxy: Option<UpstreamProxy>,
    /// Certificates (PEM) that the guests trust besides those of their templates.
    pub extra_ca: String,
    /// What each sandbox may use, if it is not to use less.
    pub limits: Limits,
    /// What machines reach in which templates are built.
    pub builds: Policy,
}

impl Default for NetworkConfig {
    fn default() -> Self {
        let presets = [Preset::Pypi, Preset::Npm, Preset::Debian, Preset::Github];
        let builds = Policy::allow(presets.map(|preset| Entry { target: Target::Preset(preset), ports: Ports::Usual }));
        Self {
            opened: Vec::new(),
            name_servers: Vec::new(),
            proxy: None,
            extra_ca: String::new(),
            limits: Limits::default(),
            builds,
        }
    }
}

/// What all gateways of an engine share.
pub(crate) struct GatewayDefaults {
    pub(crate) opened: Vec<Ipv4Net>,
    pub(crate) limits: Limits,
    pub(crate) resolver: Arc<dyn Resolver>,
    pub(crate) proxy: Option<UpstreamProxy>,
    pub(crate) extra_ca: Arc<str>,
    pub(crate) totals: Arc<Totals>,
    roots: OnceLock<TrustRoots>,
}

impl GatewayDefaults {
    pub(crate) fn new(config: &NetworkConfig) -> Self {
        let resolver = match config.name_servers.as_slice() {
            [] => SystemResolver::of_the_host(),
            servers => SystemResolver::of_servers(servers),
        };
        let resolver: Arc<dyn Resolver> = match resolver {
            Ok(resolver) => Arc::new(resolver),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "no name can be resolved for sandboxes");
                Arc::new(NoNameServers)
            }
        };
        Self {
            opened: config.opened.clone(),
            limits: config.limits,
            resolver,
            proxy: config.proxy.clone(),
            extra_ca: config.extra_ca.as_str().into(),
            totals: Arc::default(),
            roots: OnceLock::new(),
        }
    }

    /// What opens TLS with this authority.
    pub(crate) fn interception(&self, authority: Arc<Authority>) -> Interception {
        Interception { authority, roots: self.roots() }
    }

    /// The roots that servers are verified against where TLS is opened. Read once, when first needed.
    fn roots(&self) -> TrustRoots {
        self.roots.get_or_init(TrustRoots::of_the_host).clone()
    }
}

/// A host without name servers.
struct NoNameServers;

impl Resolver for NoNameServers {
    fn resolve<'a>(&'a self, _: &'a HostName) -> Resolving<'a> {
        Box::pin(async { Err(ResolveError::Failed("the host has no name servers".into())) })
    }
}
