//! Starts a gateway, reconfigures it while it runs, and stops it.

use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::config::{GatewayConfig, Interception};
use crate::dns::{Lookups, PROXIED, Pin, Pins, ProxiedResolver, Resolver};
use crate::flow::Flow;
use crate::frame::{self, Ends};
use crate::header_rules::HeaderRules;
use crate::host;
use crate::journal::{Journal, Stats};
use crate::limits::Limits;
use crate::link::Link;
use crate::meters::Meters;
use crate::peers::{PeerNames, Peers};
use crate::policy::{Learned, Policy, Rules};
use crate::receive::receive;
use crate::secret::SecretSet;
use crate::shared::Shared;
use crate::tcp::Table;
use crate::tls::{Interceptor, RootsError};
use crate::udp::Exchanges;
use crate::{connections, datagrams};

/// The gateway of one sandbox.
pub struct Gateway;

/// Why a gateway cannot start.
#[derive(Debug, Error)]
pub enum StartError {
    #[error("cannot use the network cable to the virtual machine")]
    Cable(#[source] io::Error),
    #[error("the MTU must be between {low} and {high}, not {0}", low = Ends::MTU.start(), high = Ends::MTU.end())]
    Mtu(u16),
    #[error("cannot read the host's own addresses")]
    Host(#[source] io::Error),
    #[error("cannot set up TLS interception")]
    Interception(#[from] RootsError),
}

/// A running gateway. Dropping the handle stops it.
pub struct GatewayHandle {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
}

impl Gateway {
    /// Starts a gateway on the current tokio runtime.
    pub fn start(config: GatewayConfig) -> Result<GatewayHandle, StartError> {
        if !Ends::MTU.contains(&config.ends.mtu) {
            return Err(StartError::Mtu(config.ends.mtu));
        }
        let interceptor = match &config.interception {
            Some(with) => Some(Arc::new(Interceptor::new(with.authority.clone(), &with.roots)?)),
            None => None,
        };
        let cut = config.cut.clone();
        let host = host::addresses().map_err(StartError::Host)?;
        let shared = Arc::new(share(config, host, interceptor).map_err(StartError::Cable)?);
        let mut tasks = JoinSet::new();
        if !cut.is_empty() {
            tasks.spawn(cut_off(shared.clone(), cut));
        }
        tasks.spawn(receive(shared.clone()));
        let sender = shared.clone();
        tasks.spawn(async move { sender.link.send_waiting().await });
        Ok(GatewayHandle { shared, tasks })
    }
}

/// Resets connections that the guest has and this gateway does not know. The gateway sends segments outside any window.
/// The guest replies with its sequence numbers, and the gateway answers that reply with a reset, as it does for every
/// segment of an unknown connection.
async fn cut_off(shared: Arc<Shared>, flows: Vec<Flow>) {
    for frame in flows.iter().flat_map(|flow| frame::probes(&shared.link.ends, flow)) {
        while shared.link.is_full() {
            shared.link.room().await;
        }
        shared.link.send(frame);
    }
}

fn share(config: GatewayConfig, host: Arc<[Ipv4Addr]>, interceptor: Option<Arc<Interceptor>>) -> io::Result<Shared> {
    let (mut opened, mut resolver) = (config.opened, config.resolver);
    if let Some(proxy) = &config.proxy {
        opened.push(PROXIED);
        resolver = Arc::new(ProxiedResolver { direct: resolver, proxy: proxy.clone() }) as Arc<dyn Resolver>;
    }
    let rules = Rules { policy: config.policy, bound: config.bound, opened, host };
    let journal = Arc::new(Journal::new(config.events, config.totals));
    Ok(Shared {
        link: Arc::new(Link::open(config.cable, config.ends, journal.clone())?),
        journal,
        meters: Arc::new(Meters::new(&config.limits, config.bytes_out)),
        pins: Pins::restored(&config.pins),
        lookups: Lookups::new(resolver, &config.limits),
        proxy: config.proxy,
        table: Table::default(),
        exchanges: Exchanges::default(),
        rules: watch::Sender::new(Arc::new(rules)),
        secrets: watch::Sender::new(Arc::new(config.secrets)),
        header_rules: RwLock::new(Arc::new(config.header_rules)),
        interceptor: RwLock::new(interceptor),
        peers: PeerNames::new(config.peers, config.ends.peer_network),
        served: Mutex::default(),
        learned: Mutex::new(config.learned),
        fence: config.fence,
    })
}

impl GatewayHandle {
    /// Replaces the policy and the workspace's bound in one step. Open connections are judged again.
    pub fn set_policies(&self, policy: Policy, bound: Option<Policy>) {
        self.shared.rules.send_modify(|rules| {
            *rules = Arc::new(Rules { policy, bound, ..Rules::clone(rules) });
        });
    }

    /// Replaces the secrets at once, and resets connections to hosts whose secrets change.
    pub fn set_secrets(&self, secrets: SecretSet) {
        self.shared.secrets.send_replace(Arc::new(secrets));
    }

    /// Replaces the headers that are set in requests. Connections whose TLS must be opened now, or no longer, are reset.
    pub fn set_header_rules(&self, rules: HeaderRules) {
        *self.shared.header_rules.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rules);
        self.shared.judge_again();
    }

    /// Moves the sandbox to another group, or out of all groups. Connections with its previous peers are reset.
    pub fn set_peers(&self, peers: Option<Arc<dyn Peers>>) {
        self.shared.peers.set(peers);
        self.shared.judge_again();
        connections::hang_up(&self.shared);
        datagrams::hang_up(&self.shared);
    }

    /// When a peer last used the guest; now, if a peer has a connection to it.
    pub fn served(&self) -> Option<Instant> {
        self.shared.served()
    }

    /// Uses this authority and these roots for TLS that it intercepts from now on.
    pub fn set_interception(&self, with: &Interception) -> Result<(), RootsError> {
        let interceptor = Arc::new(Interceptor::new(with.authority.clone(), &with.roots)?);
        *self.shared.interceptor.write().unwrap_or_else(PoisonError::into_inner) = Some(interceptor);
        Ok(())
    }

    /// Replaces the limits at once. Connections above a new limit stay open.
    pub fn set_limits(&self, limits: Limits) {
        self.shared.set_limits(&limits);
    }

    /// The counters of this gateway.
    pub fn stats(&self) -> Stats {
        let mut stats = self.shared.journal.counters.read();
        stats.connections_open = self.shared.open() as u64;
        stats
    }

    /// The current pins, for the next gateway of this sandbox.
    pub fn pins(&self) -> Vec<Pin> {
        self.shared.pins.all()
    }

    /// The connections that the guest knows.
    pub fn flows(&self) -> Vec<Flow> {
        self.shared.table.flows()
    }

    /// The destinations learned by this gateway and its predecessors.
    pub fn learned(&self) -> Learned {
        self.shared.learned.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Resets all connections, because the guest was restored to an earlier moment and does not know them.
    pub fn reset_connections(&self) {
        self.shared.reset();
    }

    /// Stops the gateway, and resets its connections while the guest can still receive the resets.
    pub async fn stop(mut self) {
        self.shared.close();
        self.tasks.shutdown().await;
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Drop for GatewayHandle {
    fn drop(&mut self) {
        self.shared.close();
        self.shared.link.unbind();
    }
}
