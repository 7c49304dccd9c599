//! Starts a gateway, changes it while it runs, and ends it.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::config::GatewayConfig;
use crate::dns::{DnsServer, Pin, Pins};
use crate::event::{Journal, Stats};
use crate::frame::Ends;
use crate::link::Link;
use crate::peers::PeerNames;
use crate::policy::{Learned, Policy, Rules};
use crate::receive::receive;
use crate::secret::SecretSet;
use crate::shared::{Meters, Shared};
use crate::tcp::Table;
use crate::tls::{Interceptor, RootsError};

/// One sandbox's gateway.
pub struct Gateway;

/// Why a gateway cannot start.
#[derive(Debug, Error)]
pub enum StartError {
    #[error("the cable to the machine cannot be used")]
    Cable(#[source] io::Error),
    #[error("the MTU {0} is not between {low} and {high}", low = Ends::MTU.start(), high = Ends::MTU.end())]
    Mtu(u16),
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
            Some(with) => Some(Interceptor::new(with.authority.clone(), &with.roots)?),
            None => None,
        };
        let shared = Arc::new(share(config, interceptor).map_err(StartError::Cable)?);
        let mut tasks = JoinSet::new();
        tasks.spawn(receive(shared.clone()));
        let sender = shared.clone();
        tasks.spawn(async move { sender.link.send_waiting(&sender.journal.counters).await });
        Ok(GatewayHandle { shared, tasks })
    }
}

fn share(config: GatewayConfig, interceptor: Option<Interceptor>) -> io::Result<Shared> {
    let rules = Rules { policy: config.policy, opened: config.opened };
    Ok(Shared {
        link: Link::open(config.cable)?,
        journal: Journal::new(config.events),
        pins: Pins::restored(&config.pins),
        dns: DnsServer::new(config.resolver, &config.limits),
        table: Table::default(),
        rules: watch::Sender::new(Arc::new(rules)),
        secrets: watch::Sender::new(Arc::new(config.secrets)),
        interceptor,
        peers: PeerNames::new(config.peers, config.ends.peer_network),
        learned: Mutex::new(Learned::default()),
        meters: Meters::new(&config.limits, config.bytes_out),
        ends: config.ends,
        limits: config.limits,
    })
}

impl GatewayHandle {
    /// Changes the policy, at once and also for open connections.
    pub fn set_policy(&self, policy: Policy) {
        self.shared.rules.send_modify(|rules| {
            *rules = Arc::new(Rules { policy, opened: rules.opened.clone() });
        });
    }

    /// The policy of this moment.
    pub fn policy(&self) -> Policy {
        self.shared.rules().policy.clone()
    }

    /// Changes the secrets, at once: connections to hosts whose secrets change are reset.
    pub fn set_secrets(&self, secrets: SecretSet) {
        self.shared.secrets.send_replace(Arc::new(secrets));
    }

    /// What was counted.
    pub fn stats(&self) -> Stats {
        let mut stats = self.shared.journal.counters.read();
        stats.connections_open = self.shared.table.count().0 as u64;
        stats
    }

    /// What is pinned, for the next gateway of this sandbox.
    pub fn pins(&self) -> Vec<Pin> {
        self.shared.pins.all()
    }

    /// The policy that would have allowed what was used while learning.
    pub fn learned(&self) -> Policy {
        self.shared.learned.lock().unwrap_or_else(PoisonError::into_inner).policy()
    }

    /// Resets all connections: the guest was put back to an earlier moment and does not know them.
    pub fn reset_connections(&self) {
        self.shared.table.reset();
    }

    /// Ends the gateway, and resets its connections while the guest can still hear it.
    pub async fn stop(mut self) {
        self.shared.table.reset();
        self.tasks.shutdown().await;
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Drop for GatewayHandle {
    fn drop(&mut self) {
        self.shared.table.reset();
        self.shared.link.unbind();
    }
}
