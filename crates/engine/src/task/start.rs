//! Starting the task of a sandbox.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::{mpsc, watch};

use super::disk_full;
use super::hibernation::Hibernation;
use super::notices::Notices;
use crate::lifecycle::Request;
use crate::model::{Lifetime, SandboxInfo, Standing, Timeline};
use crate::network::SandboxNetwork;
use crate::parts::Parts;
use crate::registry::Registry;
use crate::sandbox::{Activity, Command, Phase, Sandbox, Saves};

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
    pub(super) hibernating: watch::Sender<bool>,
    pub(super) notices: Notices,
    pub(super) activity: Arc<Activity>,
    /// What its machine requests when the host's disk is full, or no longer is.
    pub(super) stalls: mpsc::Receiver<Request>,
    pub(super) hibernation: Arc<dyn Hibernation>,
    /// The deadline that the machine was last given.
    pub(super) deadline: Option<SystemTime>,
    pub(super) saves: Saves,
    /// If it could not hibernate or end when it was time, the next attempt waits until then.
    pub(super) retry_at: Option<Instant>,
}

/// What an engine gives to the tasks of its sandboxes.
pub(crate) struct Host {
    pub(crate) parts: Parts,
    pub(crate) registry: Arc<Registry>,
    pub(crate) hibernate_after: Option<Duration>,
    pub(crate) hibernation: Arc<dyn Hibernation>,
}

impl Host {
    /// Registers a sandbox and starts its task. Returns `None` if the engine is closing.
    pub(crate) fn start(&self, phase: Phase, info: SandboxInfo) -> Option<Arc<Sandbox>> {
        let (sandbox, mut task, inbox) = self.make(phase, info);
        if let Some(live) = task.live() {
            // At once: QEMU reports only once that it cannot write.
            task.stalls = disk_full::watch(&live, task.phase.subscribe(), &task.parts.disk, &task.info.id);
        }
        // Before the sandbox is registered: its time ends even if this process dies now.
        task.set_deadline(sandbox.lifetime.borrow().left(Duration::ZERO).map(|(left, _)| left));
        let registered = self.registry.register(sandbox.clone());
        sandbox.network.renew();
        tokio::spawn(task.run(inbox));
        // If it is not registered, the only handle is dropped here, and the task ends the machine.
        registered.then_some(sandbox)
    }

    /// Registers a sandbox without a task, so that it is listed and nobody can wake, take over or end it.
    pub(crate) fn park(&self, phase: Phase, info: SandboxInfo) {
        let (sandbox, ..) = self.make(phase, info);
        self.registry.register(sandbox);
    }

    fn make(&self, phase: Phase, info: SandboxInfo) -> (Arc<Sandbox>, SandboxTask, mpsc::Receiver<Command>) {
        let (phase, observed) = watch::channel(phase);
        let (lifetime, lifetime_seen) = watch::channel(info.lifetime);
        let (standing, standing_seen) = watch::channel(info.standing.clone());
        let (timeline, timeline_seen) = watch::channel(info.timeline.clone());
        let (telling_guest, telling_seen) = watch::channel(false);
        let (hibernating, hibernating_seen) = watch::channel(false);
        let network = self.parts.networks.open(&info);
        let (commands, inbox) = mpsc::channel(64);
        let activity = Activity::new();
        let saves = Saves::default();
        let sandbox = Arc::new(Sandbox {
            info: info.clone(),
            phase: observed,
            lifetime: lifetime_seen,
            commands,
            activity: activity.clone(),
            standing: standing_seen,
            timeline: timeline_seen,
            network: network.clone(),
            telling_guest: telling_seen,
            hibernating: hibernating_seen,
            saves: saves.clone(),
        });
        let dir = self.parts.machines.factory.sandboxes.join(info.id.as_str());
        let task = SandboxTask {
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
            hibernating,
            notices: Notices::default(),
            activity,
            stalls: mpsc::channel(1).1,
            hibernation: self.hibernation.clone(),
            deadline: None,
            saves,
            retry_at: None,
        };
        (sandbox, task, inbox)
    }
}
