//! The network of one sandbox: its gateway while its machine runs, and what is kept from one gateway to the next.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use sandling_network::policy::Policy;
use sandling_network::{Cable, Event, Gateway, GatewayConfig, GatewayHandle, Interception, Pin, Stats};
use sandling_vmm::machine::Machine;
use serde::Serialize;
use tokio::sync::{broadcast, mpsc, watch};

use super::error::NetworkError;
use super::feed::{Feed, NetworkEvent};
use super::settings::NetworkSettings;
use crate::engine::Engine;
use crate::sandbox::{Sandbox, SandboxInfo};

/// Decisions that may wait to be written down.
const WAITING: usize = 1024;

/// What went through a sandbox's gateways.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct NetworkCounts {
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub connections_open: u64,
    pub connections_allowed: u64,
    pub connections_refused: u64,
    pub dns_queries: u64,
    pub dns_refused: u64,
    pub requests_refused: u64,
    pub packets_refused: u64,
}

pub(crate) struct Network {
    settings: watch::Sender<NetworkSettings>,
    state: Mutex<State>,
    feed: Arc<Feed>,
}

#[derive(Default)]
struct State {
    gateway: Option<GatewayHandle>,
    /// Of gateways that have ended.
    past: NetworkCounts,
    pins: Vec<Pin>,
}

impl Network {
    pub(crate) fn new(settings: NetworkSettings) -> Arc<Self> {
        let (settings, state) = (watch::Sender::new(settings), Mutex::default());
        Arc::new(Self { settings, state, feed: Arc::new(Feed::new()) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn settings(&self) -> NetworkSettings {
        self.settings.borrow().clone()
    }

    /// Puts a gateway at the other end of a machine's card. Until then its frames wait.
    pub(crate) async fn attach(
        &self,
        engine: &Arc<Engine>,
        info: &SandboxInfo,
        machine: &Machine,
    ) -> Result<(), NetworkError> {
        let cable = Cable::Pair(machine.connect_cable().await?);
        let settings = self.settings();
        let outside = &engine.outside;
        let mut config = GatewayConfig::new(cable, outside.resolver.clone());
        config.opened = outside.opened.clone();
        config.limits = outside.limits;
        config.policy = settings.policy;
        if settings.has_authority {
            let authority = engine.authority_of(&info.id)?;
            config.interception = authority.map(|authority| Interception { authority, roots: outside.roots() });
            config.secrets = engine.secret_set(&info.workspace, &settings.secrets);
        }
        let (tell, told) = mpsc::channel(WAITING);
        config.events = Some(tell);
        tokio::spawn(write_down(Arc::downgrade(engine), info.clone(), self.feed.clone(), told));
        self.detach();
        let mut state = self.state();
        config.pins = std::mem::take(&mut state.pins);
        config.bytes_out = state.past.sent_bytes;
        state.gateway = Some(Gateway::start(config)?);
        Ok(())
    }

    /// Ends the gateway; the guest's connections are reset.
    pub(crate) fn detach(&self) {
        let mut state = self.state();
        if let Some(gateway) = state.gateway.take() {
            state.past = state.past.and(&gateway.stats());
            state.past.connections_open = 0;
            state.pins = gateway.pins();
        }
    }

    /// Applies other settings, at once and to open connections too.
    pub(crate) fn apply(&self, engine: &Engine, workspace: &str, settings: NetworkSettings) {
        let secrets = engine.secret_set(workspace, &settings.secrets);
        self.settings.send_replace(settings.clone());
        if let Some(gateway) = &self.state().gateway {
            gateway.set_policy(settings.policy);
            gateway.set_secrets(secrets);
        }
    }

    /// Takes the secrets as they are stored now.
    pub(super) fn renew_secrets(&self, engine: &Engine, workspace: &str) {
        let attached = self.settings().secrets;
        if attached.is_empty() {
            return;
        }
        let secrets = engine.secret_set(workspace, &attached);
        if let Some(gateway) = &self.state().gateway {
            gateway.set_secrets(secrets);
        }
    }

    fn counts(&self) -> NetworkCounts {
        let state = self.state();
        state.gateway.as_ref().map_or(state.past, |gateway| state.past.and(&gateway.stats()))
    }
}

impl NetworkCounts {
    fn and(self, stats: &Stats) -> Self {
        Self {
            sent_bytes: self.sent_bytes + stats.bytes_out,
            received_bytes: self.received_bytes + stats.bytes_in,
            connections_open: stats.connections_open,
            connections_allowed: self.connections_allowed + stats.connections_allowed,
            connections_refused: self.connections_refused + stats.connections_refused,
            dns_queries: self.dns_queries + stats.dns_queries,
            dns_refused: self.dns_refused + stats.dns_refused,
            requests_refused: self.requests_refused + stats.requests_refused,
            packets_refused: self.packets_refused + stats.packets_refused,
        }
    }
}

impl Sandbox {
    /// What it may reach, and with which secrets.
    pub fn network(&self) -> NetworkSettings {
        self.network.settings()
    }

    /// What went through its gateways so far.
    pub fn network_counts(&self) -> NetworkCounts {
        self.network.counts()
    }

    /// The policy that would have allowed what it used since it began to learn; nothing while it does not run.
    pub fn learned_policy(&self) -> Option<Policy> {
        self.network.state().gateway.as_ref().map(GatewayHandle::learned)
    }

    /// What its gateways decided, the newest of it: after the event of this number, at most so many, oldest first.
    pub fn network_events(&self, after: u64, most: usize) -> Vec<NetworkEvent> {
        self.network.feed.after(after, most)
    }

    /// What its gateways decide from now on.
    pub fn subscribe_network(&self) -> broadcast::Receiver<NetworkEvent> {
        self.network.feed.subscribe()
    }
}

/// Passes a gateway's decisions on until it has ended.
async fn write_down(engine: Weak<Engine>, info: SandboxInfo, feed: Arc<Feed>, mut told: mpsc::Receiver<Event>) {
    while let Some(event) = told.recv().await {
        let detail = serde_json::to_value(&event).unwrap_or_default();
        if !feed.push(event) {
            continue;
        }
        let Some(engine) = engine.upgrade() else { return };
        if let Err(error) = engine.record(&info.id, &info.workspace, "network", detail) {
            tracing::debug!(error = &error as &dyn std::error::Error, "a decision was not written down");
        }
    }
}
