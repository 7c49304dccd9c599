//! The network of one sandbox: its gateway while its machine runs, and what is handed from one gateway to the next.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use sandling_network::policy::Policy;
use sandling_network::{
    Authority, Cable, Event, EventKind, Flow, Gateway, GatewayConfig, GatewayHandle, StartError, Totals, Verdict,
};
use sandling_vmm::machine::Machine;
use tokio::sync::{broadcast, mpsc, watch};
use tokio::time::Instant;

use super::counts::NetworkCounts;
use super::error::NetworkError;
use super::feed::{Feed, NetworkEvent};
use super::groups::Place;
use super::in_force::InForce;
use super::kept::Kept;
use super::settings::NetworkSettings;
use crate::engine::Engine;
use crate::sandbox::{Sandbox, SandboxId, SandboxInfo};

/// Decisions that may wait to be written down.
const WAITING: usize = 1024;
/// A guest that asks for names and connects all the time makes no more writes than this.
const KEEP_EVERY: Duration = Duration::from_secs(1);
/// How often it is looked whether an open connection has sent more.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// All pins are written each time: whoever has many is written less often, so that it is never more than some kilobytes
/// a second.
const REST_PER_ENTRY: Duration = Duration::from_millis(10);

pub(crate) struct Network {
    settings: watch::Sender<NetworkSettings>,
    state: Mutex<State>,
    feed: Arc<Feed>,
}

#[derive(Default)]
struct State {
    /// Before the gateway: whoever goes says so first.
    place: Option<Place>,
    gateway: Option<GatewayHandle>,
    in_force: InForce,
    /// Of gateways that have ended.
    kept: Kept,
}

impl Network {
    /// It reaches nothing until what holds is found out ([`renew`](Self::renew), [`attach`](Self::attach)).
    pub(crate) fn new(settings: NetworkSettings, kept: Kept) -> Arc<Self> {
        let (settings, state) = (watch::Sender::new(settings), Mutex::new(State { kept, ..State::default() }));
        Arc::new(Self { settings, state, feed: Arc::new(Feed::new()) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn settings(&self) -> NetworkSettings {
        self.settings.borrow().clone()
    }

    pub(crate) fn in_force(&self) -> InForce {
        self.state().in_force.clone()
    }

    /// When a sandbox of its group last used it.
    pub(crate) fn served(&self) -> Option<Instant> {
        self.state().gateway.as_ref()?.served()
    }

    /// Whether its TLS has to be opened, and there is nothing yet to do so with.
    pub(crate) fn lacks_authority(&self) -> bool {
        self.in_force().inspects() && !self.settings.borrow().has_authority
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
        config.totals = outside.totals.clone();
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
        let mut state = self.state();
        // A default that changes, or a secret that is revoked, from here on finds this gateway.
        let in_force = engine.in_force(&info.workspace, &info.template, &settings)?;
        (config.policy, config.bound) = (in_force.policy.clone(), in_force.bound.clone());
        config.limits = in_force.limits;
        state.in_force = in_force;
        if settings.has_authority {
            config.secrets = engine.secret_set(&info.workspace, &settings.secrets);
        }
        config.pins = std::mem::take(&mut state.kept.pins);
        config.learned = std::mem::take(&mut state.kept.learned);
        config.bytes_out = state.kept.counts.sent_bytes;
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
            state.kept = state.kept.after(&gateway);
            state.kept.counts.connections_open = 0;
        }
    }

    /// Writes down what a gateway after this process needs. Answers how much that is.
    pub(crate) fn keep(&self, engine: &Engine, id: &SandboxId) -> usize {
        let kept = {
            let state = self.state();
            state.gateway.as_ref().map(|gateway| state.kept.after(gateway))
        };
        let Some(kept) = kept else { return 0 };
        if kept != Kept::default()
            && let Err(error) = engine.store.put_kept(id.as_str(), &kept)
        {
            tracing::debug!(error = &error as &dyn std::error::Error, "what a gateway leaves was not written down");
        }
        kept.size()
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
        let mut opened = Ok(());
        if let Some(gateway) = gateway {
            if moved {
                // It leaves before it joins: it may only change its name.
                *place = None;
                *place = settings.group.as_ref().map(|group| Place::of(engine, info, group));
                place.iter_mut().for_each(|place| place.take(gateway));
                gateway.set_peers(place.as_ref().and_then(Place::member));
            }
            if let Some(authority) = authority {
                opened = gateway.set_interception(&engine.outside.interception(authority));
            }
            gateway.set_secrets(engine.secret_set(&info.workspace, &settings.secrets));
        }
        state.renew(engine, info, &settings);
        Ok(opened.map_err(StartError::from)?)
    }

    /// Takes what the defaults say now, at once and for open connections too. True if other things hold than before.
    pub(crate) fn renew(&self, engine: &Engine, info: &SandboxInfo) -> bool {
        let mut state = self.state();
        let settings = self.settings();
        state.renew(engine, info, &settings)
    }

    /// Takes the secrets as they are stored now.
    pub(super) fn renew_secrets(&self, engine: &Engine, info: &SandboxInfo) {
        let mut state = self.state();
        // Read under the lock: what is read last is also what is set last.
        let settings = self.settings();
        if let Some(gateway) = state.gateway.as_ref().filter(|_| !settings.secrets.is_empty()) {
            gateway.set_secrets(engine.secret_set(&info.workspace, &settings.secrets));
        }
        state.renew(engine, info, &settings);
    }

    fn counts(&self) -> NetworkCounts {
        let state = self.state();
        let past = state.kept.counts;
        state.gateway.as_ref().map_or(past, |gateway| past.and(&gateway.stats()))
    }
}

impl State {
    /// Under the lock: what is read last is also what is set last. What cannot be read allows nothing.
    fn renew(&mut self, engine: &Engine, info: &SandboxInfo, settings: &NetworkSettings) -> bool {
        let read = engine.in_force(&info.workspace, &info.template, settings);
        let in_force = read.unwrap_or_else(|error| {
            tracing::error!(sandbox = %info.id, error = &error as &dyn std::error::Error, "its network is closed");
            InForce::default()
        });
        if in_force == self.in_force {
            return false;
        }
        if let Some(gateway) = &self.gateway {
            gateway.set_limits(in_force.limits);
            gateway.set_policies(in_force.policy.clone(), in_force.bound.clone());
        }
        self.in_force = in_force;
        true
    }
}

impl Engine {
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
    /// What it says of its network itself, and with which secrets.
    pub fn network(&self) -> NetworkSettings {
        self.network.settings()
    }

    /// What it may reach and use, whoever said so.
    pub fn network_in_force(&self) -> InForce {
        self.network.in_force()
    }

    /// What went through its gateways so far.
    pub fn network_counts(&self) -> NetworkCounts {
        self.network.counts()
    }

    /// The policy that would have allowed what it used while it learned.
    pub fn learned_policy(&self) -> Policy {
        let state = self.network.state();
        state.gateway.as_ref().map_or_else(|| state.kept.learned.policy(), |gateway| gateway.learned().policy())
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

/// Writes down what a gateway decides, and what it leaves to the next.
struct Writer {
    engine: Weak<Engine>,
    info: SandboxInfo,
    network: Weak<Network>,
}

impl Writer {
    /// Passes decisions on until the gateway has ended.
    async fn write_down(self, feed: Arc<Feed>, mut told: mpsc::Receiver<Event>) {
        let mut pace = Pace::new();
        loop {
            let event = tokio::select! {
                event = told.recv() => event,
                () = tokio::time::sleep_until(pace.due.unwrap_or(pace.soonest)), if pace.due.is_some() => {
                    self.keep(&mut pace);
                    continue;
                }
            };
            let Some(event) = event else { return };
            if leaves_something(&event) {
                pace.news = true;
                pace.due = Some(pace.due.map_or(pace.soonest, |due| due.min(pace.soonest)));
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

    /// Writes down what there is, if it is more than before, and says when to look again.
    fn keep(&self, pace: &mut Pace) {
        pace.due = None;
        let (Some(engine), Some(network)) = (self.engine.upgrade(), self.network.upgrade()) else { return };
        let counts = network.counts();
        if std::mem::take(&mut pace.news) || counts.sent_bytes != pace.sent_bytes {
            pace.sent_bytes = counts.sent_bytes;
            let rest = REST_PER_ENTRY.saturating_mul(network.keep(&engine, &self.info.id) as u32);
            pace.soonest = Instant::now() + KEEP_EVERY.max(rest);
        }
        // While nothing is open nothing is sent.
        pace.due = (counts.connections_open > 0).then(|| pace.soonest.max(Instant::now() + LOOK_EVERY));
    }
}

/// When it is written down what a gateway leaves.
struct Pace {
    due: Option<Instant>,
    soonest: Instant,
    /// Something was decided since.
    news: bool,
    /// What was sent by then.
    sent_bytes: u64,
}

impl Pace {
    fn new() -> Self {
        Self { due: None, soonest: Instant::now(), news: false, sent_bytes: 0 }
    }
}

/// Whether the next gateway has to know of it: a name was pinned, or a connection may send, or has sent.
fn leaves_something(event: &Event) -> bool {
    match event.kind {
        EventKind::Dns => event.verdict == Verdict::Allowed && event.address.is_some(),
        EventKind::Connect | EventKind::Accept => event.verdict == Verdict::Allowed,
        EventKind::Close => event.bytes_out > 0,
        EventKind::Name | EventKind::Request | EventKind::Packet => false,
    }
}
