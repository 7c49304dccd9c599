//! Starting the task of a sandbox.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::{mpsc, watch};

use super::disk_full;
use super::notices::Notices;
use crate::events::Events;
use crate::machine::Live;
use crate::model::{Lifetime, SandboxInfo, Standing, Timeline};
use crate::network::SandboxNetwork;
use crate::parts::Parts;
use crate::registry::Registry;
use crate::sandbox::{Activity, Phase, Sandbox, Saves};

pub(super) struct SandboxTask {
    pub(super) parts: Parts,
    /// Weak, because it holds the handle, and a task ends when all handles are gone.
    pub(super) registry: Weak<Registry>,
    pub(super) handle: Weak<Sandbox>,
    /// A persistent sandbox that is idle for so long hibernates.
    pub(super) hibernate_after: Option<Duration>,
    pub(super) info: SandboxInfo,
    pub(super) dir: PathBuf,
    pub(super) phase: watch::Sender<Phase>,
    pub(super) lifetime: watch::Sender<Lifetime>,
    pub(super) standing: watch::Sender<Standing>,
    pub(super) timeline: watch::Sender<Timeline>,
    pub(super) network: Arc<SandboxNetwork>,
    pub(super) telling_guest: watch::Sender<bool>,
    pub(super) notices: Notices,
    /// Absent while the sandbox hibernates.
    pub(super) live: Option<Arc<Live>>,
    pub(super) activity: Arc<Activity>,
    pub(super) stalled: Arc<watch::Sender<bool>>,
    /// The deadline that the machine was last given.
    pub(super) deadline: Option<SystemTime>,
    pub(super) saves: Saves,
    /// After a failed hibernation, the next attempt waits until then.
    pub(super) awake_until: Option<Instant>,
}

/// What an engine gives to the tasks of its sandboxes.
pub(crate) struct Host {
    pub(crate) parts: Parts,
    pub(crate) registry: Arc<Registry>,
    pub(crate) hibernate_after: Option<Duration>,
}

impl Host {
    /// Registers a sandbox and starts its task. Without a machine, the sandbox hibernates. Returns `None` if the engine
    /// is closing.
    pub(crate) fn start(&self, live: Option<Live>, info: SandboxInfo) -> Option<Arc<Sandbox>> {
        let live = live.map(Arc::new);
        let (phase, observed) = watch::channel(live.clone().map_or(Phase::Hibernated, Phase::Running));
        let (lifetime, lifetime_seen) = watch::channel(info.lifetime);
        let (standing, standing_seen) = watch::channel(info.standing.clone());
        let (timeline, timeline_seen) = watch::channel(info.timeline.clone());
        let (telling_guest, telling_seen) = watch::channel(false);
        let network = self.parts.networks.open(&info);
        let (commands, inbox) = mpsc::channel(64);
        let activity = Activity::new();
        let saves = Saves::default();
        let stalled = Arc::new(watch::Sender::new(false));
        if let Some(live) = &live {
            disk_full::watch(live, observed.clone(), stalled.clone(), note(&self.parts.events, &info));
        }
        let sandbox = Arc::new(Sandbox {
            info: info.clone(),
            phase: observed,
            lifetime: lifetime_seen,
            stalled: stalled.subscribe(),
            commands,
            activity: activity.clone(),
            standing: standing_seen,
            timeline: timeline_seen,
            network: network.clone(),
            telling_guest: telling_seen,
            saves: saves.clone(),
        });
        let dir = self.parts.machines.factory.sandboxes.join(info.id.as_str());
        let mut task = SandboxTask {
            parts: self.parts.clone(),
            registry: Arc::downgrade(&self.registry),
            handle: Arc::downgrade(&sandbox),
            hibernate_after: self.hibernate_after,
            info,
            dir,
            phase,
            lifetime,
            standing,
            timeline,
            network,
            telling_guest,
            notices: Notices::default(),
            live,
            activity,
            stalled,
            deadline: None,
            saves,
            awake_until: None,
        };
        // Before the sandbox is registered: its time ends even if this process dies now.
        task.set_deadline(sandbox.lifetime.borrow().left(Duration::ZERO).map(|(left, _)| left));
        let registered = self.registry.register(sandbox.clone());
        sandbox.network.renew();
        tokio::spawn(task.run(inbox));
        // If it is not registered, the only handle is dropped here, and the task ends the machine.
        registered.then_some(sandbox)
    }
}

/// Records that a sandbox stands still because the disk is full, or no longer does.
pub(super) fn note(events: &Arc<Events>, info: &SandboxInfo) -> impl Fn(&str) + Send + 'static {
    let (events, id, workspace) = (events.clone(), info.id.clone(), info.workspace.clone());
    move |kind| {
        tracing::warn!(sandbox = %id, kind, "the host's disk is full or has room again");
        // On a full disk this fails, too; then the log has it.
        let _ = events.record(&id, &workspace, kind, serde_json::json!({}));
    }
}
