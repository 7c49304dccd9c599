//! Resolves names to addresses on the host.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ProtocolConfig, ResolveHosts, ResolverConfig,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use thiserror::Error;

use crate::name::HostName;

/// The addresses of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    pub addresses: Vec<Ipv4Addr>,
    pub ttl: Duration,
}

/// Why a name cannot be resolved.
#[derive(Debug, Error)]
pub enum ResolveError {
    #[error("the name does not exist")]
    NoSuchName,
    #[error("the name servers did not answer")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Resolves names to IPv4 addresses. One resolver serves all gateways of a daemon.
pub trait Resolver: Send + Sync + 'static {
    /// The addresses of `name`.
    fn resolve<'a>(&'a self, name: &'a HostName) -> BoxFuture<'a, Result<Resolved, ResolveError>>;
}

/// Asks the host's configured name servers, or those that the operator chose.
pub struct SystemResolver(TokioResolver);

impl SystemResolver {
    /// Uses the host's name servers and hosts file.
    pub fn of_the_host() -> Result<SystemResolver, ResolveError> {
        let mut builder = TokioResolver::builder_tokio().map_err(failed)?;
        builder.options_mut().ip_strategy = LookupIpStrategy::Ipv4Only;
        Ok(SystemResolver(builder.build().map_err(failed)?))
    }

    /// Uses these name servers, over UDP and TCP, and no hosts file.
    pub fn of_servers(servers: &[SocketAddr]) -> Result<SystemResolver, ResolveError> {
        let mut config = ResolverConfig::from_name_servers(Vec::new());
        for server in servers {
            let connections = [ProtocolConfig::Udp, ProtocolConfig::Tcp].map(|protocol| {
                let mut connection = ConnectionConfig::new(protocol);
                connection.port = server.port();
                connection
            });
            config.add_name_server(NameServerConfig::new(server.ip(), true, connections.into()));
        }
        let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        let options = builder.options_mut();
        options.use_hosts_file = ResolveHosts::Never;
        options.ip_strategy = LookupIpStrategy::Ipv4Only;
        Ok(SystemResolver(builder.build().map_err(failed)?))
    }

    async fn look_up(&self, name: &HostName) -> Result<Resolved, ResolveError> {
        // The trailing dot prevents the use of the host's search list.
        let found = match self.0.lookup_ip(format!("{name}.")).await {
            Ok(found) => found,
            Err(error) if error.is_no_records_found() => return Err(ResolveError::NoSuchName),
            Err(error) => return Err(failed(error)),
        };
        let addresses = found.iter().filter_map(|address| match address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        });
        let ttl = found.valid_until().saturating_duration_since(Instant::now());
        Ok(Resolved { addresses: addresses.collect(), ttl })
    }
}

impl Resolver for SystemResolver {
    fn resolve<'a>(&'a self, name: &'a HostName) -> BoxFuture<'a, Result<Resolved, ResolveError>> {
        Box::pin(self.look_up(name))
    }
}

fn failed(error: NetError) -> ResolveError {
    ResolveError::Failed(Box::new(error))
}
