//! Starts a gateway, changes it while it runs, and ends it.

use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::config::{GatewayConfig, Interception};
use crate::dns::{DnsServer, Pin, Pins};
use crate::event::{Journal, Stats};
use crate::flow::Flow;
use crate::frame::{self, Ends};
use crate::host;
use crate::limits::Limits;
use crate::link::Link;
use crate::peers::{PeerNames, Peers};
use crate::policy::{Learned, Policy, Rules};
use crate::receive::receive;
use crate::secret::SecretSet;
use crate::shared::{Meters, Shared};
use crate::tcp::{Table, hang_up};
use crate::tls::{Interceptor, RootsError};
use crate::udp::{self, Exchanges};

/// One sandbox's gateway.
pub struct Gateway;

/// Why a gateway cannot start.
#[derive(Debug, Error)]
pub enum StartError {
    #[error("the cable to the machine cannot be used")]
    Cable(#[source] io::Error),
    #[error("the MTU {0} is not between {low} and {high}", low = Ends::MTU.start(), high = Ends::MTU.end())]
    Mtu(u16),
    #[error("the host's own addresses cannot be read")]
    Host(#[source] io::Error),
    #[error("TLS cannot be opened")]
    Interception(#[from] RootsError),
}

/// A gateway that runs. It ends when this is dropped.
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
        tasks.spawn(async move { sender.link.send_waiting(&sender.journal.counters).await });
        Ok(GatewayHandle { shared, tasks })
    }
}

/// Ends connections that the guest has and this gateway does not. Each is sent segments that fit nowhere; the guest
/// answers with where it stands, and that, like every segment of an unknown connection, is answered with a reset.
async fn cut_off(shared: Arc<Shared>, flows: Vec<Flow>) {
    for frame in flows.iter().flat_map(|flow| frame::probes(&shared.ends, flow)) {
        while shared.link.is_full() {
            shared.link.room().await;
        }
        shared.link.send(frame, &shared.journal.counters);
    }
}

fn share(config: GatewayConfig, host: Arc<[Ipv4Addr]>, interceptor: Option<Arc<Interceptor>>) -> io::Result<Shared> {
    let rules = Rules { policy: config.policy, bound: config.bound, opened: config.opened, host };
    Ok(Shared {
        link: Link::open(config.cable)?,
        journal: Journal::new(config.events, config.totals),
        pins: Pins::restored(&config.pins),
        dns: DnsServer::new(config.resolver, &config.limits),
        table: Table::default(),
        exchanges: Exchanges::default(),
        rules: watch::Sender::new(Arc::new(rules)),
        secrets: watch::Sender::new(Arc::new(config.secrets)),
        interceptor: RwLock::new(interceptor),
        peers: PeerNames::new(config.peers, config.ends.peer_network),
        served: Mutex::default(),
        learned: Mutex::new(config.learned),
        meters: Meters::new(&config.limits, config.bytes_out),
        ends: config.ends,
        limits: RwLock::new(config.limits),
    })
}

impl GatewayHandle {
    /// Changes the policy and what binds it, both at once and also for open connections.
    pub fn set_policies(&self, policy: Policy, bound: Option<Policy>) {
        self.shared.rules.send_modify(|rules| {
            *rules = Arc::new(Rules { policy, bound, ..Rules::clone(rules) });
        });
    }

    /// Changes the secrets, at once: connections to hosts whose secrets change are reset.
    pub fn set_secrets(&self, secrets: SecretSet) {
        self.shared.secrets.send_replace(Arc::new(secrets));
    }

    /// Puts it among others, or alone. Its connections with the peers that it had are reset.
    pub fn set_peers(&self, peers: Option<Arc<dyn Peers>>) {
        self.shared.peers.set(peers);
        self.shared.judge_again();
        hang_up(&self.shared);
        udp::hang_up(&self.shared);
    }

    /// When a peer last used the guest: now, while one has a connection to it.
    pub fn served(&self) -> Option<Instant> {
        self.shared.served()
    }

    /// Opens TLS with this from now on, where it has to be opened.
    pub fn set_interception(&self, with: &Interception) -> Result<(), RootsError> {
        let interceptor = Arc::new(Interceptor::new(with.authority.clone(), &with.roots)?);
        *self.shared.interceptor.write().unwrap_or_else(PoisonError::into_inner) = Some(interceptor);
        Ok(())
    }

    /// Changes the limits, at once. Connections that are open beyond a new limit stay.
    pub fn set_limits(&self, limits: Limits) {
        self.shared.limit(limits);
    }

    /// What was counted.
    pub fn stats(&self) -> Stats {
        let mut stats = self.shared.journal.counters.read();
        stats.connections_open = self.shared.open() as u64;
        stats
    }

    /// What is pinned, for the next gateway of this sandbox.
    pub fn pins(&self) -> Vec<Pin> {
        self.shared.pins.all()
    }

    /// The connections that the guest has, as far as it can know of them.
    pub fn flows(&self) -> Vec<Flow> {
        self.shared.table.flows()
    }

    /// What was used while learning, by this gateway and those before it.
    pub fn learned(&self) -> Learned {
        self.shared.learned.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Resets all connections: the guest was put back to an earlier moment and does not know them.
    pub fn reset_connections(&self) {
        self.shared.reset();
    }

    /// Ends the gateway, and resets its connections while the guest can still hear it.
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
