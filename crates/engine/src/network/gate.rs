//! The network of one sandbox: its gateway while its machine runs, and what is kept from one gateway to the next.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use sandling_network::policy::Policy;
use sandling_network::{
    Authority, Cable, Event, EventKind, Flow, Gateway, GatewayConfig, GatewayHandle, Limits, Pin, StartError, Stats,
    Totals, Verdict,
};
use sandling_vmm::machine::Machine;
use serde::Serialize;
use tokio::sync::{broadcast, mpsc, watch};
use tokio::time::Instant;

use super::error::NetworkError;
use super::feed::{Feed, NetworkEvent};
use super::groups::Place;
use super::settings::NetworkSettings;
use crate::engine::Engine;
use crate::sandbox::{Sandbox, SandboxId, SandboxInfo};

/// Decisions that may wait to be written down.
const WAITING: usize = 1024;
/// A guest that asks for names all the time makes no more writes than this.
const KEEP_PINS_EVERY: Duration = Duration::from_secs(1);
/// All pins are written each time: whoever has many is written less often, so that it is never more than some kilobytes
/// a second.
const REST_PER_PIN: Duration = Duration::from_millis(10);

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
    /// What the operator lets every sandbox use.
    most: Limits,
    state: Mutex<State>,
    feed: Arc<Feed>,
}

#[derive(Default)]
struct State {
    /// Before the gateway: whoever goes says so first.
    place: Option<Place>,
    gateway: Option<GatewayHandle>,
    /// Of gateways that have ended.
    past: NetworkCounts,
    pins: Vec<Pin>,
}

impl Network {
    pub(crate) fn new(settings: NetworkSettings, most: Limits) -> Arc<Self> {
        let (settings, state) = (watch::Sender::new(settings), Mutex::default());
        Arc::new(Self { settings, most, state, feed: Arc::new(Feed::new()) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn settings(&self) -> NetworkSettings {
        self.settings.borrow().clone()
    }

    /// Puts a gateway at the other end of a machine's card. Until then its frames wait. What the guest has of
    /// connections that were `cut` is reset.
    pub(crate) async fn attach(
        self: &Arc<Self>,
        engine: &Arc<Engine>,
        info: &SandboxInfo,
        machine: &Machine,
        cut: Vec<Flow>,
    ) -> Result<(), NetworkError> {
        let cable = Cable::Pair(machine.connect_cable().await?);
        let settings = self.settings();
        let outside = &engine.outside;
        let mut config = GatewayConfig::new(cable, outside.resolver.clone());
        config.opened = outside.opened.clone();
        config.limits = settings.limits.within(&self.most);
        config.totals = outside.totals.clone();
        config.policy = settings.policy;
        if settings.has_authority {
            let authority = engine.authority_of(&info.id)?;
            config.interception = authority.map(|authority| outside.interception(authority));
        }
        let (tell, told) = mpsc::channel(WAITING);
        config.events = Some(tell);
        config.cut = cut;
        let mut place = settings.group.as_ref().map(|group| Place::of(engine, info, group));
        let writer = Writer { engine: Arc::downgrade(engine), info: info.clone(), network: Arc::downgrade(self) };
        tokio::spawn(writer.write_down(self.feed.clone(), told));
        self.detach();
        let stored = engine.pins_of(info);
        let mut state = self.state();
        // A secret that is revoked from here on finds this gateway.
        if settings.has_authority {
            config.secrets = engine.secret_set(&info.workspace, &settings.secrets);
        }
        config.pins = if state.pins.is_empty() { stored } else { std::mem::take(&mut state.pins) };
        config.bytes_out = state.past.sent_bytes;
        let gateway = Gateway::start(config)?;
        if let Some(place) = &mut place {
            place.take(&gateway);
            gateway.set_peers(place.member());
        }
        (state.place, state.gateway) = (place, Some(gateway));
        Ok(())
    }

    /// Ends the gateway; the guest's connections are reset.
    pub(crate) fn detach(&self) {
        let mut state = self.state();
        state.place = None;
        if let Some(gateway) = state.gateway.take() {
            state.past = state.past.and(&gateway.stats());
            state.past.connections_open = 0;
            state.pins = gateway.pins();
        }
    }

    /// Keeps what is pinned for a gateway after this process. Answers how much that is.
    pub(crate) fn keep_pins(&self, engine: &Engine, id: &SandboxId) -> usize {
        let Some(pins) = self.state().gateway.as_ref().map(GatewayHandle::pins) else { return 0 };
        if let Err(error) = engine.store.put_pins(id.as_str(), &pins) {
            tracing::debug!(error = &error as &dyn std::error::Error, "what names resolved to was not written down");
        }
        pins.len()
    }

    /// The connections that the guest has at the moment.
    pub(crate) fn flows(&self) -> Vec<Flow> {
        self.state().gateway.as_ref().map(GatewayHandle::flows).unwrap_or_default()
    }

    /// Applies other settings, at once and to open connections too. An authority is one that the guest trusts now.
    pub(crate) fn apply(
        &self,
        engine: &Engine,
        info: &SandboxInfo,
        settings: NetworkSettings,
        authority: Option<Arc<Authority>>,
    ) -> Result<(), NetworkError> {
        let moved = self.settings.send_replace(settings.clone()).group != settings.group;
        let mut state = self.state();
        let State { place, gateway, .. } = &mut *state;
        if let Some(gateway) = gateway {
            if moved {
                // It leaves before it joins: it may only change its name.
                *place = None;
                *place = settings.group.as_ref().map(|group| Place::of(engine, info, group));
                place.iter_mut().for_each(|place| place.take(gateway));
                gateway.set_peers(place.as_ref().and_then(Place::member));
            }
            if let Some(authority) = authority {
                gateway.set_interception(&engine.outside.interception(authority)).map_err(StartError::from)?;
            }
            gateway.set_limits(settings.limits.within(&self.most));
            gateway.set_secrets(engine.secret_set(&info.workspace, &settings.secrets));
            gateway.set_policy(settings.policy);
        }
        Ok(())
    }

    /// Takes the secrets as they are stored now.
    pub(super) fn renew_secrets(&self, engine: &Engine, workspace: &str) {
        let state = self.state();
        // Read under the lock: what is read last is also what is set last.
        let attached = self.settings().secrets;
        if let Some(gateway) = state.gateway.as_ref().filter(|_| !attached.is_empty()) {
            gateway.set_secrets(engine.secret_set(workspace, &attached));
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

impl Engine {
    /// What a sandbox has pinned, as far as it is written down; what its parent had, if it has nothing yet.
    fn pins_of(&self, info: &SandboxInfo) -> Vec<Pin> {
        let stored = |id: &SandboxId| self.store.pins(id.as_str()).unwrap_or_default();
        let own = stored(&info.id);
        match &info.parent {
            Some(parent) if own.is_empty() => stored(parent),
            _ => own,
        }
    }

    /// What all gateways decided and carried, those of sandboxes that have ended included.
    pub fn network_totals(&self) -> &Totals {
        &self.outside.totals
    }

    /// How many connections are open at the moment.
    pub fn network_connections(&self) -> u64 {
        self.living().iter().map(|sandbox| sandbox.network_counts().connections_open).sum()
    }
}

impl Sandbox {
    /// What it may reach, and with which secrets.
    pub fn network(&self) -> NetworkSettings {
        self.network.settings()
    }

    /// How much of the network it may use.
    pub fn network_limits(&self) -> Limits {
        self.network.settings().limits.within(&self.network.most)
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

/// Writes down what a gateway decides, and what it pins.
struct Writer {
    engine: Weak<Engine>,
    info: SandboxInfo,
    network: Weak<Network>,
}

impl Writer {
    /// Passes decisions on until the gateway has ended.
    async fn write_down(self, feed: Arc<Feed>, mut told: mpsc::Receiver<Event>) {
        let (mut due, mut soonest): (Option<Instant>, Instant) = (None, Instant::now());
        loop {
            let event = tokio::select! {
                event = told.recv() => event,
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    due = None;
                    soonest = Instant::now() + rest_after(self.keep_pins());
                    continue;
                }
            };
            let Some(event) = event else { return };
            // One without an address pins nothing.
            if event.kind == EventKind::Dns && event.verdict == Verdict::Allowed && event.address.is_some() {
                due.get_or_insert(soonest);
            }
            self.decided(&feed, event);
        }
    }

    fn decided(&self, feed: &Feed, event: Event) {
        let detail = serde_json::to_value(&event).unwrap_or_default();
        if !feed.push(event) {
            return;
        }
        let Some(engine) = self.engine.upgrade() else { return };
        if let Err(error) = engine.record(&self.info.id, &self.info.workspace, "network", detail) {
            tracing::debug!(error = &error as &dyn std::error::Error, "a decision was not written down");
        }
    }

    fn keep_pins(&self) -> usize {
        match (self.engine.upgrade(), self.network.upgrade()) {
            (Some(engine), Some(network)) => network.keep_pins(&engine, &self.info.id),
            _ => 0,
        }
    }
}

fn rest_after(pins: usize) -> Duration {
    KEEP_PINS_EVERY.max(REST_PER_PIN.saturating_mul(pins as u32))
}
