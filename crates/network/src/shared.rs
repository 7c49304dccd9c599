//! The state that all tasks of one gateway share.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use sandling_proxy::UpstreamProxy;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::destination::{Destination, Refused, only};
use crate::dns::{Lookups, Pins};
use crate::flow::OWN_PORTS;
use crate::header_rules::HeaderRules;
use crate::host;
use crate::journal::Journal;
use crate::limits::Limits;
use crate::link::Link;
use crate::meters::Meters;
use crate::name::HostName;
use crate::peers::PeerNames;
use crate::policy::{Learned, Mode, Refusal, Rules, Shown};
use crate::secret::SecretSet;
use crate::tcp::Table;
use crate::tls::Interceptor;
use crate::traffic::Traffic;
use crate::udp::Exchanges;

/// The state that all tasks of one gateway share.
pub(crate) struct Shared {
    pub link: Arc<Link>,
    pub journal: Arc<Journal>,
    pub meters: Arc<Meters>,
    pub pins: Pins,
    pub lookups: Lookups,
    pub proxy: Option<UpstreamProxy>,
    pub table: Table,
    pub exchanges: Exchanges,
    pub rules: watch::Sender<Arc<Rules>>,
    pub secrets: watch::Sender<Arc<SecretSet>>,
    pub header_rules: RwLock<Arc<HeaderRules>>,
    pub interceptor: RwLock<Option<Arc<Interceptor>>>,
    pub peers: PeerNames,
    /// When a peer last started or ended a flow with the guest.
    pub served: Mutex<Option<Instant>>,
    pub learned: Mutex<Learned>,
    /// Whether the guest may send now.
    pub fence: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
}

impl Shared {
    pub fn is_fenced(&self) -> bool {
        self.fence.as_ref().is_some_and(|may_send| !may_send())
    }

    /// Replaces the limits.
    pub fn set_limits(&self, limits: &Limits) {
        self.meters.set_limits(limits);
        self.lookups.set_limits(limits);
    }

    /// The TLS interceptor, if one is configured.
    pub fn interceptor(&self) -> Option<Arc<Interceptor>> {
        self.interceptor.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The headers to set in requests.
    pub fn header_rules(&self) -> Arc<HeaderRules> {
        self.header_rules.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The current rules, with the host's current addresses.
    pub fn rules(&self) -> Arc<Rules> {
        let rules = self.rules.borrow().clone();
        match host::addresses() {
            Ok(host) if host != rules.host => {
                // The host has a new address. Open connections are judged again, because one may go to it.
                self.rules.send_modify(|rules| *rules = Arc::new(Rules { host, ..Rules::clone(rules) }));
                self.rules.borrow().clone()
            }
            _ => rules,
        }
    }

    /// The number of connections and exchanges of datagrams.
    pub fn open(&self) -> usize {
        self.table.count().0 + self.exchanges.count()
    }

    /// When a peer last used the guest; now, if a peer has a connection to it.
    pub fn served(&self) -> Option<Instant> {
        let serves =
            self.table.has_dialled(self.link.ends.gateway_address, &OWN_PORTS) || self.exchanges.have_dialled();
        if serves {
            self.serves_now();
        }
        *self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn serves_now(&self) {
        *self.served.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Whether the limits allow another flow that a peer starts.
    pub fn admits_peer(&self) -> bool {
        self.open() < self.meters.limits().connections && self.meters.opening()
    }

    /// Resets all connections and exchanges.
    pub fn reset(&self) {
        self.table.reset();
        self.exchanges.reset();
    }

    /// Resets all connections and exchanges, and prevents new ones.
    pub fn close(&self) {
        self.table.close();
        self.exchanges.close();
    }

    /// Makes all open connections judge themselves again.
    pub fn judge_again(&self) {
        self.rules.send_modify(|_| {});
    }

    /// The destination of a connection or datagram: a peer, or a host if `judge` allows it. `judge` gets the current
    /// rules and the names for which DNS returned the address.
    pub fn destination(
        &self,
        address: Ipv4Addr,
        port: u16,
        judge: impl FnOnce(&Rules, &[HostName]) -> Result<(), Refusal>,
    ) -> Result<Destination, Refused> {
        if let Some(peer) = self.peers.peer(address) {
            let names = vec![peer.name.clone()];
            return Ok(Destination { address, port, names, peer: Some(peer) });
        }
        if self.meters.is_spent() {
            return Err((Refusal::BytesOut, None));
        }
        let names = self.pins.names(address);
        match judge(&self.rules(), &names) {
            Ok(()) => Ok(Destination { address, port, names, peer: None }),
            Err(why) => Err((why, only(&names))),
        }
    }

    /// The proxy that carries connections to a destination, if one does, and the host to ask it for.
    pub fn proxy_to(&self, to: &Destination) -> Option<(&UpstreamProxy, String)> {
        let host = to.names.first().map_or_else(|| to.address.to_string(), HostName::to_string);
        self.proxy.as_ref().filter(|proxy| proxy.serves(&host, to.port)).map(|proxy| (proxy, host))
    }

    /// The accounting of a new connection or exchange, which enforces the sandbox's limits.
    pub fn traffic(&self) -> Arc<Traffic> {
        Traffic::new(self.meters.clone(), self.journal.clone())
    }

    /// Records a destination, if the policy is in learning mode.
    pub fn learn(&self, to: &Destination, shown: Shown<'_>) {
        if self.rules.borrow().policy.mode != Mode::Learn {
            return;
        }
        let mut learned = self.learned.lock().unwrap_or_else(PoisonError::into_inner);
        learned.connection(to.address, to.port, shown, &to.names);
    }
}
