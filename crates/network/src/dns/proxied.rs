//! Addresses for names that the upstream proxy resolves. They exist only between the guest and its gateway.
//!
//! Each name has its own address, so the gateway knows the name that a connection is for when it asks the proxy.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use ipnet::Ipv4Net;
use sandling_proxy::UpstreamProxy;
use tokio::time::timeout;

use super::resolver::{ResolveError, Resolved, Resolver};
use crate::name::HostName;
use crate::policy::Range;

/// Addresses that the internet does not use.
pub(crate) const PROXIED: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(240, 0, 0, 0), 4);
const TTL: Duration = Duration::from_secs(60);
/// How long the host's name servers may take. Behind a proxy, they often know no names of the internet.
const CHECKED_WITHIN: Duration = Duration::from_secs(1);

/// Gives addresses of its own to names that are reached through the proxy, and asks another resolver for the others.
pub(crate) struct ProxiedResolver {
    pub direct: Arc<dyn Resolver>,
    pub proxy: UpstreamProxy,
}

impl ProxiedResolver {
    async fn look_up(&self, name: &HostName) -> Result<Resolved, ResolveError> {
        if !self.proxy.serves(&name.to_string(), 443) {
            return self.direct.resolve(name).await;
        }
        // The proxy may be able to reach private networks. If the host's name servers say that the name is in one, the
        // guest gets that address, and the rules refuse it.
        if let Ok(Ok(found)) = timeout(CHECKED_WITHIN, self.direct.resolve(name)).await
            && found.addresses.iter().any(|address| Range::of(IpAddr::V4(*address)).is_some())
        {
            return Ok(found);
        }
        Ok(Resolved { addresses: vec![address_of(name)], ttl: TTL })
    }
}

impl Resolver for ProxiedResolver {
    fn resolve<'a>(&'a self, name: &'a HostName) -> BoxFuture<'a, Result<Resolved, ResolveError>> {
        Box::pin(self.look_up(name))
    }
}

/// Always the same for a name, so that a restored guest can go on with an address that it knows.
fn address_of(name: &HostName) -> Ipv4Addr {
    let mut hasher = DefaultHasher::new();
    name.to_string().hash(&mut hasher);
    let host = hasher.finish() as u32 & u32::from(PROXIED.hostmask());
    // The last address is the broadcast address.
    let last = u32::from(PROXIED.hostmask());
    Ipv4Addr::from(u32::from(PROXIED.network()) | if host == last { host - 1 } else { host })
}
