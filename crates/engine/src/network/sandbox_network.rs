//! The network of one sandbox: its gateway while the machine runs, and what one gateway hands to the next.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use sandling_network::policy::Policy;
use sandling_network::{
    Authority, Cable, Event, EventKind, Flow, Gateway, GatewayConfig, GatewayHandle, StartError, Verdict,
};
use sandling_vmm::machine::Machine;
use sandling_wire::CountsView;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;

use super::error::NetworkError;
use super::feed::Feed;
use super::groups::Place;
use super::saved_state::add;
use super::shared::Shared;
use crate::model::{EffectivePolicy, NetworkSettings, SandboxId, SandboxInfo, SavedState};

/// A gateway's decisions that may wait to be recorded.
const WAITING: usize = 1024;
/// How often a gateway's state is saved at most, however much the guest does.
const SAVE_EVERY: Duration = Duration::from_secs(1);
/// How often to check whether an open connection has sent more.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// A save writes all entries. This pause per entry bounds the writes to some kilobytes a second.
const PAUSE_PER_ENTRY: Duration = Duration::from_millis(10);

/// The network of one sandbox, for as long as the sandbox lives.
pub(crate) struct SandboxNetwork {
    shared: Arc<Shared>,
    id: SandboxId,
    workspace: String,
    template: String,
    has_failover: bool,
    settings: watch::Sender<NetworkSettings>,
    state: Mutex<State>,
    feed: Arc<Feed>,
    /// Tells the sandbox's task that a default changed and the guest has to trust an authority now.
    authority_wanted: Notify,
}

#[derive(Default)]
struct State {
    /// Declared before the gateway, because a member must leave its group before its gateway ends.
    place: Option<Place>,
    gateway: Option<GatewayHandle>,
    effective: EffectivePolicy,
    /// What earlier gateways left.
    saved: SavedState,
}

impl SandboxNetwork {
    pub(super) fn new(shared: &Arc<Shared>, info: &SandboxInfo) -> Arc<Self> {
        let state = State { saved: shared.saved_state_of(info), ..State::default() };
        Arc::new(Self {
            shared: shared.clone(),
            id: info.id.clone(),
            workspace: info.workspace.clone(),
            template: info.template.clone(),
            has_failover: info.settings.failover.is_some(),
            settings: watch::Sender::new(info.network.clone()),
            state: Mutex::new(state),
            feed: Arc::new(Feed::new()),
            authority_wanted: Notify::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn id(&self) -> &SandboxId {
        &self.id
    }

    pub(super) fn workspace(&self) -> &str {
        &self.workspace
    }

    pub(crate) fn settings(&self) -> NetworkSettings {
        self.settings.borrow().clone()
    }

    pub(crate) fn effective(&self) -> EffectivePolicy {
        self.state().effective.clone()
    }

    /// When another sandbox of its group last used it.
    pub(crate) fn served(&self) -> Option<Instant> {
        self.state().gateway.as_ref()?.served()
    }

    /// Whether the gateway has to open TLS and has no authority to do so.
    pub(crate) fn lacks_authority(&self) -> bool {
        let settings = self.settings();
        (settings.header_rules.is_some() || self.effective().inspects()) && !settings.has_authority
    }

    pub(super) fn want_authority(&self) {
        self.authority_wanted.notify_one();
    }

    /// Waits until a changed default requires that the guest trusts an authority.
    pub(crate) async fn authority_wanted(&self) {
        self.authority_wanted.notified().await;
    }

    /// Starts a gateway at the other end of a machine's network card. Until then the guest's frames wait. The gateway
    /// resets the connections in `cut`, which the guest still believes to be open.
    pub(crate) async fn attach(self: &Arc<Self>, machine: &Machine, cut: Vec<Flow>) -> Result<(), NetworkError> {
        let cable = Cable::Pair(machine.connect_cable().await?);
        let settings = self.settings();
        let gateways = &self.shared.gateways;
        let mut config = GatewayConfig::new(cable, gateways.resolver.clone());
        config.opened = gateways.opened.clone();
        config.proxy = gateways.proxy.clone();
        config.totals = gateways.totals.clone();
        if settings.has_authority {
            let authority = self.shared.authority_of(&self.id)?;
            config.interception = authority.map(|authority| gateways.interception(authority));
        }
        let (tell, told) = mpsc::channel(WAITING);
        config.events = Some(tell);
        config.cut = cut;
        config.fence = self.fence();
        let mut place = self.place(&settings);
        tokio::spawn(Writer::new(self).run(told));
        self.detach();
        let mut state = self.state();
        // From here on, a changed default or a revoked secret reaches this gateway.
        let effective = self.shared.effective(&self.workspace, &self.template, &settings)?;
        (config.policy, config.bound) = (effective.policy.clone(), effective.bound.clone());
        config.limits = effective.limits;
        state.effective = effective;
        if settings.has_authority {
            config.secrets = self.shared.secret_set(&self.workspace, &settings.secrets);
        }
        config.header_rules = self.shared.header_rules(&self.workspace, &settings);
        config.pins = std::mem::take(&mut state.saved.pins);
        config.learned = std::mem::take(&mut state.saved.learned);
        config.bytes_out = state.saved.counts.sent_bytes;
        let gateway = Gateway::start(config)?;
        if let Some(place) = &mut place {
            place.take(&gateway);
            gateway.set_peers(place.member());
        }
        (state.place, state.gateway) = (place, Some(gateway));
        Ok(())
    }

    fn fence(&self) -> Option<Arc<dyn Fn() -> bool + Send + Sync>> {
        let (fence, id) = (self.shared.fence.get().filter(|_| self.has_failover)?.clone(), self.id.clone());
        Some(Arc::new(move || fence(&id)))
    }

    fn place(&self, settings: &NetworkSettings) -> Option<Place> {
        let group = settings.group.as_ref()?;
        Some(Place::of(&self.shared.groups, &self.workspace, &self.id, group))
    }

    /// Ends the gateway, which resets the guest's connections.
    pub(crate) fn detach(&self) {
        let mut state = self.state();
        state.place = None;
        if let Some(gateway) = state.gateway.take() {
            state.saved = state.saved.after(&gateway);
            state.saved.counts.connections_open = 0;
        }
    }

    /// Writes to the store what the next gateway needs, in case this process ends. Returns the number of its entries.
    pub(crate) fn save(&self) -> usize {
        let saved = {
            let state = self.state();
            state.gateway.as_ref().map(|gateway| state.saved.after(gateway))
        };
        let Some(saved) = saved else { return 0 };
        if saved != SavedState::default()
            && let Err(error) = self.shared.store.save_gateway_state(self.id.as_str(), &saved)
        {
            tracing::debug!(sandbox = %self.id, error = &error as &dyn std::error::Error, "could not save a gateway's state");
        }
        saved.size()
    }

    /// The connections that the guest has at the moment.
    pub(crate) fn flows(&self) -> Vec<Flow> {
        self.state().gateway.as_ref().map(GatewayHandle::flows).unwrap_or_default()
    }

    /// Applies other settings, at once and to open connections too. An authority is one that the guest trusts now.
    pub(crate) fn apply(
        &self,
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
                *place = self.place(&settings);
                place.iter_mut().for_each(|place| place.take(gateway));
                gateway.set_peers(place.as_ref().and_then(Place::member));
            }
            if let Some(authority) = authority {
                opened = gateway.set_interception(&self.shared.gateways.interception(authority));
            }
            gateway.set_secrets(self.shared.secret_set(&self.workspace, &settings.secrets));
            gateway.set_header_rules(self.shared.header_rules(&self.workspace, &settings));
        }
        self.renew_state(&mut state, &settings);
        Ok(opened.map_err(StartError::from)?)
    }

    /// Applies the defaults as they are now, at once and to open connections too. Returns whether anything changed.
    pub(crate) fn renew(&self) -> bool {
        let mut state = self.state();
        let settings = self.settings();
        self.renew_state(&mut state, &settings)
    }

    /// Applies the workspace's secrets as they are stored now.
    pub(super) fn renew_secrets(&self) {
        let mut state = self.state();
        // Read under the lock, so that the newest secrets are also set last.
        let settings = self.settings();
        if let Some(gateway) = state.gateway.as_ref().filter(|_| !settings.secrets.is_empty()) {
            gateway.set_secrets(self.shared.secret_set(&self.workspace, &settings.secrets));
        }
        self.renew_state(&mut state, &settings);
    }

    /// Reads the defaults under the lock, so that the newest are also set last. If they cannot be read, the sandbox
    /// reaches nothing.
    fn renew_state(&self, state: &mut State, settings: &NetworkSettings) -> bool {
        let read = self.shared.effective(&self.workspace, &self.template, settings);
        let effective = read.unwrap_or_else(|error| {
            tracing::error!(sandbox = %self.id, error = &error as &dyn std::error::Error, "closed the sandbox's network: its policy cannot be read");
            EffectivePolicy::default()
        });
        if effective == state.effective {
            return false;
        }
        if let Some(gateway) = &state.gateway {
            gateway.set_limits(effective.limits);
            gateway.set_policies(effective.policy.clone(), effective.bound.clone());
        }
        state.effective = effective;
        true
    }

    pub(crate) fn counts(&self) -> CountsView {
        let state = self.state();
        let past = state.saved.counts;
        state.gateway.as_ref().map_or(past, |gateway| add(past, &gateway.stats()))
    }

    /// The policy that would have allowed what the sandbox used while it learned.
    pub(crate) fn learned_policy(&self) -> Policy {
        let state = self.state();
        state.gateway.as_ref().map_or_else(|| state.saved.learned.policy(), |gateway| gateway.learned().policy())
    }

    pub(crate) fn feed(&self) -> &Feed {
        &self.feed
    }
}

/// Records what a gateway decides, and saves its state for the next gateway.
struct Writer {
    network: Weak<SandboxNetwork>,
    shared: Arc<Shared>,
    feed: Arc<Feed>,
    id: SandboxId,
    workspace: String,
}

impl Writer {
    fn new(network: &Arc<SandboxNetwork>) -> Self {
        Self {
            network: Arc::downgrade(network),
            shared: network.shared.clone(),
            feed: network.feed.clone(),
            id: network.id.clone(),
            workspace: network.workspace.clone(),
        }
    }

    /// Records decisions until the gateway has ended.
    async fn run(self, mut told: mpsc::Receiver<Event>) {
        let mut pace = Pace::new();
        loop {
            let event = tokio::select! {
                event = told.recv() => event,
                () = tokio::time::sleep_until(pace.due.unwrap_or(pace.soonest)), if pace.due.is_some() => {
                    self.save(&mut pace);
                    continue;
                }
            };
            let Some(event) = event else { return };
            if changes_saved_state(&event) {
                pace.changed = true;
                pace.due = Some(pace.due.map_or(pace.soonest, |due| due.min(pace.soonest)));
            }
            self.record(event);
        }
    }

    fn record(&self, event: Event) {
        let detail = serde_json::to_value(&event).unwrap_or_default();
        if !self.feed.push(event) {
            return;
        }
        if let Err(error) = self.shared.events.record(&self.id, &self.workspace, "network", detail) {
            tracing::debug!(sandbox = %self.id, error = &error as &dyn std::error::Error, "could not record a gateway's decision");
        }
    }

    /// Saves the gateway's state if it changed, and sets when to look again.
    fn save(&self, pace: &mut Pace) {
        pace.due = None;
        let Some(network) = self.network.upgrade() else { return };
        let counts = network.counts();
        if std::mem::take(&mut pace.changed) || counts.sent_bytes != pace.sent_bytes {
            pace.sent_bytes = counts.sent_bytes;
            let pause = PAUSE_PER_ENTRY.saturating_mul(network.save() as u32);
            pace.soonest = Instant::now() + SAVE_EVERY.max(pause);
        }
        // Without an open connection, nothing is sent.
        pace.due = (counts.connections_open > 0).then(|| pace.soonest.max(Instant::now() + LOOK_EVERY));
    }
}

/// When a gateway's state is saved next.
struct Pace {
    due: Option<Instant>,
    soonest: Instant,
    /// A decision since the last save changed the state.
    changed: bool,
    /// The bytes sent at the last save.
    sent_bytes: u64,
}

impl Pace {
    fn new() -> Self {
        Self { due: None, soonest: Instant::now(), changed: false, sent_bytes: 0 }
    }
}

/// Whether the next gateway needs to know: a name was pinned, or a connection may send or has sent.
fn changes_saved_state(event: &Event) -> bool {
    match event.kind {
        EventKind::Dns => event.verdict == Verdict::Allowed && event.address.is_some(),
        EventKind::Connect | EventKind::Accept => event.verdict == Verdict::Allowed,
        EventKind::Close => event.bytes_out > 0,
        EventKind::Name | EventKind::Request | EventKind::Packet => false,
    }
}
