//! One sandbox: what it is, what it is doing, and the task that owns it.
//!
//! Everybody else holds an `Arc<Sandbox>`: to use it they ask for its [`Live`] machine, to change it they send its
//! task a [`Command`]. Only that task changes the [`Phase`].

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use sandling_protocol::{Request, Response, Usage};
use sandling_vmm::boundary::Boundary;
use sandling_vmm::machine::{GuestPages, Machine, MachineError, Usage as HostUsage};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};

use crate::checkpoint::CheckpointError;
use crate::create::CreateError;
use crate::expiry::{Activity, Lifetime, LifetimeChange};
use crate::format::Format;
use crate::lifecycle::{self, Refused, State};
use crate::link::{Link, LinkError};
use crate::network::{InForce, Network, NetworkChange, NetworkChangeError, NetworkCounts, NetworkSettings};
use crate::settings::SandboxSettings;
use crate::snapshot::{Saves, Saving, SnapshotError, SnapshotId, Standing};
use crate::store::{Listed, StoreError};
use crate::timeline::{Checkpoint, Mark, Timeline};
use crate::volume::{Attachment, OnVolumes, VolumeError};

/// A sandbox's id: a UUID, parsed once at the edge.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SandboxId(String);

impl SandboxId {
    pub(crate) fn fresh() -> Self {
        Self(uuid::Uuid::new_v4().to_string())
    }

    /// Reads an id, with its dashes or without any: some clients allow none.
    pub fn parse(text: &str) -> Option<Self> {
        let known = matches!(text.len(), 36 | 32);
        uuid::Uuid::parse_str(text).ok().filter(|_| known).map(|id| Self(id.to_string()))
    }

    /// The id without its dashes.
    pub fn compact(&self) -> String {
        self.0.replace('-', "")
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SandboxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How a sandbox came to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BootMode {
    Standby,
    Restore,
}

/// What can be told about a sandbox.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SandboxInfo {
    pub id: SandboxId,
    pub template: String,
    /// The image it stands on, which outlives its template's name.
    pub image: String,
    pub state: State,
    pub vcpus: u32,
    pub memory_mib: u32,
    pub disk_mib: u32,
    pub pids: u32,
    pub created_at: Timestamp,
    pub boot_mode: BootMode,
    /// From the request to the guest's own answer.
    pub boot_ms: f64,
    pub lifetime: Lifetime,
    /// Whose it is.
    pub workspace: String,
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub settings: SandboxSettings,
    pub boundary: Boundary,
    /// The bake that it stands on, by its key.
    #[serde(default)]
    pub bake: String,
    /// The snapshots that it stands on.
    #[serde(default)]
    pub standing: Standing,
    /// The sandbox that it was forked from.
    #[serde(default)]
    pub parent: Option<SandboxId>,
    /// The snapshot that it was made from, if it was no fork.
    #[serde(default)]
    pub from_snapshot: Option<SnapshotId>,
    /// Where it can go back to.
    #[serde(default)]
    pub timeline: Timeline,
    /// What it says of its network itself.
    #[serde(default)]
    pub network: NetworkSettings,
    /// What it may reach, while it lives.
    #[serde(skip)]
    pub in_force: InForce,
    #[serde(default)]
    pub volumes: Vec<Attachment>,
    #[serde(flatten)]
    pub format: Format<1>,
}

/// Why a sandbox ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    #[error("it was asked to end")]
    Requested,
    #[error("its time to live was over")]
    Ttl,
    #[error("nobody used it for too long")]
    Idle,
    #[error("its guest died: {0}")]
    GuestDied(String),
    #[error("the engine that kept it was closed")]
    EngineClosed,
}

/// What a sandbox has used.
#[derive(Debug, Clone)]
pub struct SandboxUsage {
    /// QEMU's process.
    pub pid: i32,
    pub host: HostUsage,
    /// Absent while it is paused or stands still.
    pub guest: Option<Usage>,
    pub network: NetworkCounts,
}

/// A sandbox's machine and the link to its guest.
pub(crate) struct Live {
    pub(crate) machine: Machine,
    pub(crate) link: Link,
}

/// A sandbox's state with what belongs to it.
#[derive(Clone)]
pub(crate) enum Phase {
    Running(Arc<Live>),
    Paused(Arc<Live>),
    Hibernated,
    Ended(EndReason),
}

impl Phase {
    pub(crate) fn state(&self) -> State {
        match self {
            Phase::Running(_) => State::Running,
            Phase::Paused(_) => State::Paused,
            Phase::Hibernated => State::Hibernated,
            Phase::Ended(_) => State::Ended,
        }
    }
}

/// What can be asked of a sandbox's task.
pub(crate) enum Command {
    Change {
        request: lifecycle::Request,
        reason: EndReason,
        answer: oneshot::Sender<Result<(), ChangeError>>,
    },
    SetLifetime {
        change: LifetimeChange,
        answer: oneshot::Sender<Result<(), StoreError>>,
    },
    SetNetwork {
        change: NetworkChange,
        answer: oneshot::Sender<Result<NetworkSettings, NetworkChangeError>>,
    },
    /// Its guest may have to be told whom to trust, since a default changed.
    CatchUp,
    /// Stops the machine for a moment, to be saved behind it.
    Freeze {
        name: Option<String>,
        listed: Listed,
        /// It is to be a checkpoint.
        mark: Option<Mark>,
        /// What becomes of its volumes in what is restored from it.
        volumes: Option<OnVolumes>,
        answer: oneshot::Sender<Result<(Saving, Option<Checkpoint>), SnapshotError>>,
    },
    /// Copies a volume that it writes, as it is at one moment.
    CopyVolume {
        from: PathBuf,
        to: PathBuf,
        answer: oneshot::Sender<Result<(), VolumeError>>,
    },
    /// What was frozen has been written.
    Saved {
        snapshot: SnapshotId,
        checkpoint: Option<Checkpoint>,
        /// A checkpoint that must not go for it.
        spared: Option<u64>,
        answer: oneshot::Sender<Result<(), StoreError>>,
    },
    /// Go on from a checkpoint. The answer is where it was.
    Rewind {
        to: Checkpoint,
        answer: oneshot::Sender<Result<Option<u64>, ChangeError>>,
    },
    /// Its disk no longer stands on these layers.
    Folded {
        layers: Vec<SnapshotId>,
        answer: oneshot::Sender<()>,
    },
    NameCheckpoint {
        which: String,
        name: Option<String>,
        answer: oneshot::Sender<Result<Checkpoint, CheckpointError>>,
    },
    /// Stop looking after the machine, which goes on by itself.
    LetGo,
}

#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("the machine did not obey")]
    Machine(#[source] MachineError),
    #[error("it could not be put to sleep")]
    Save(#[from] SnapshotError),
    #[error("it could not be woken")]
    Wake(#[from] CreateError),
    #[error("it could not be written down, so it is as it was")]
    Store(#[from] StoreError),
}

/// Why a sandbox could not be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum UseError {
    #[error("the sandbox has ended: {0}")]
    Ended(EndReason),
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// A handle to one sandbox.
pub struct Sandbox {
    pub(crate) info: SandboxInfo,
    pub(crate) phase: watch::Receiver<Phase>,
    pub(crate) lifetime: watch::Receiver<Lifetime>,
    /// It stands still because the host's disk is full.
    pub(crate) stalled: watch::Receiver<bool>,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) activity: Arc<Activity>,
    pub(crate) standing: watch::Receiver<Standing>,
    pub(crate) timeline: watch::Receiver<Timeline>,
    pub(crate) network: Arc<Network>,
    /// Its guest is being told something of its network.
    pub(crate) learning: watch::Receiver<bool>,
    pub(crate) saves: Saves,
}

impl Sandbox {
    pub fn id(&self) -> &SandboxId {
        &self.info.id
    }

    pub fn info(&self) -> SandboxInfo {
        SandboxInfo {
            state: self.phase.borrow().state(),
            lifetime: *self.lifetime.borrow(),
            standing: self.standing.borrow().clone(),
            timeline: self.timeline.borrow().clone(),
            network: self.network.settings(),
            in_force: self.network.in_force(),
            ..self.info.clone()
        }
    }

    /// The machine, if it can be used right now. Holds the sandbox busy, i.e. not idle, while the guard lives.
    pub(crate) fn live(&self) -> Result<(Arc<Live>, crate::expiry::InUse), UseError> {
        let phase = self.phase.borrow().clone();
        if let Phase::Ended(reason) = &phase {
            return Err(UseError::Ended(reason.clone()));
        }
        lifecycle::decide(phase.state(), lifecycle::Request::Use)?;
        if *self.stalled.borrow() {
            return Err(Refused::DiskFull.into());
        }
        match phase {
            Phase::Running(live) => Ok((live, self.activity.begin())),
            Phase::Paused(_) => Err(Refused::Paused.into()),
            Phase::Hibernated => Err(Refused::Hibernated.into()),
            Phase::Ended(reason) => Err(UseError::Ended(reason)),
        }
    }

    /// Stops the virtual CPUs; memory stays.
    pub async fn pause(&self) -> Result<(), ChangeError> {
        self.change(lifecycle::Request::Pause, EndReason::Requested).await
    }

    pub async fn resume(&self) -> Result<(), ChangeError> {
        self.set_going(lifecycle::Request::Resume).await
    }

    /// Saves it and ends its machine: no memory is held until it is woken.
    pub async fn hibernate(&self) -> Result<(), ChangeError> {
        // The copies that are being written end with the machine.
        let _nothing_pending = self.saves.quiet().await;
        self.change(lifecycle::Request::Hibernate, EndReason::Requested).await
    }

    /// Goes on where it hibernated. However many ask for it, it happens once; one that runs is left alone.
    pub async fn wake(&self) -> Result<(), ChangeError> {
        self.set_going(lifecycle::Request::Wake).await
    }

    async fn set_going(&self, request: lifecycle::Request) -> Result<(), ChangeError> {
        let runs = matches!(*self.phase.borrow(), Phase::Running(_));
        self.change(request, EndReason::Requested).await?;
        if !runs {
            self.learned().await;
        }
        Ok(())
    }

    /// Waits until its guest was told what it is being told of its network, or could not be.
    pub(crate) async fn learned(&self) {
        // A task that has ended tells it nothing more.
        let _ = self.learning.clone().wait_for(|learning| !learning).await;
    }

    pub fn hibernates(&self) -> bool {
        matches!(*self.phase.borrow(), Phase::Hibernated)
    }

    /// Ends it: the machine, its memory and its disk are gone when this returns.
    pub async fn end(&self, reason: EndReason) -> Result<(), ChangeError> {
        self.change(lifecycle::Request::End, reason).await
    }

    /// Leaves the machine to itself, for another engine to take over.
    pub(crate) async fn let_go(&self) {
        // A task that has ended has nothing to let go of.
        if self.commands.send(Command::LetGo).await.is_ok() {
            self.commands.closed().await;
        }
    }

    /// Copies the file of a volume that it writes, while it stands still.
    pub(crate) async fn copy_volume(&self, from: PathBuf, to: PathBuf) -> Result<(), VolumeError> {
        let (answer, answered) = oneshot::channel();
        let command = Command::CopyVolume { from, to, answer };
        self.commands.send(command).await.map_err(|_| VolumeError::CutOff)?;
        answered.await.unwrap_or(Err(VolumeError::CutOff))
    }

    /// Changes how long it may live.
    pub async fn set_lifetime(&self, change: LifetimeChange) -> Result<(), ChangeError> {
        let (answer, answered) = oneshot::channel();
        if self.commands.send(Command::SetLifetime { change, answer }).await.is_err() {
            return Ok(());
        }
        // A task that ended in between has nothing left to expire.
        Ok(answered.await.unwrap_or(Ok(()))?)
    }

    /// Sends its task something that must be answered.
    pub(crate) async fn ask_task(&self, command: Command) -> Result<(), UseError> {
        self.commands.send(command).await.map_err(|_| Refused::Ended.into())
    }

    async fn change(&self, request: lifecycle::Request, reason: EndReason) -> Result<(), ChangeError> {
        let (answer, answered) = oneshot::channel();
        let gone = || lifecycle::decide(State::Ended, request).map(|_| ()).map_err(ChangeError::from);
        if self.commands.send(Command::Change { request, reason, answer }).await.is_err() {
            return gone();
        }
        answered.await.unwrap_or_else(|_| gone())
    }

    /// Waits until it has ended, and says why.
    pub async fn ended(&self) -> EndReason {
        let mut phase = self.phase.clone();
        loop {
            if let Phase::Ended(reason) = &*phase.borrow_and_update() {
                return reason.clone();
            }
            if phase.changed().await.is_err() {
                return EndReason::EngineClosed;
            }
        }
    }

    /// What it has used so far, seen from the host and from within.
    pub async fn usage(&self) -> Result<SandboxUsage, UseError> {
        let runs = matches!(*self.phase.borrow(), Phase::Running(_)) && !*self.stalled.borrow();
        let live = self.in_memory()?;
        let host = live.machine.usage().await.map_err(|error| LinkError::Closed(error.to_string()))?;
        let (pid, network) = (live.machine.pid(), self.network_counts());
        if !runs {
            return Ok(SandboxUsage { pid, host, guest: None, network });
        }
        match live.link.call(Request::Usage).await? {
            Response::Usage(guest) => Ok(SandboxUsage { pid, host, guest: Some(guest), network }),
            _ => Err(LinkError::Unexpected.into()),
        }
    }

    /// How much of its memory it shares, and how much is its own by now.
    pub(crate) async fn guest_pages(&self) -> Result<GuestPages, UseError> {
        let pages = self.in_memory()?.machine.guest_pages().await;
        pages.map_err(|error| LinkError::Closed(error.to_string()).into())
    }

    /// Its machine, also while that stands still.
    fn in_memory(&self) -> Result<Arc<Live>, UseError> {
        match &*self.phase.borrow() {
            Phase::Running(live) | Phase::Paused(live) => Ok(live.clone()),
            Phase::Hibernated => Err(Refused::Hibernated.into()),
            Phase::Ended(reason) => Err(UseError::Ended(reason.clone())),
        }
    }

    /// How long nobody has used it.
    pub fn idle_for(&self) -> std::time::Duration {
        self.activity.idle_for()
    }

    /// What the guest's console printed, the newest part of it.
    pub async fn console(&self) -> Result<Vec<u8>, UseError> {
        Ok(self.console_from(0, usize::MAX).await?.0)
    }

    /// At most `limit` bytes of the console from `offset` on, and where to go on. An offset that the console no
    /// longer reaches back to, because it began anew, starts over.
    pub async fn console_from(&self, offset: u64, limit: usize) -> Result<(Vec<u8>, u64), UseError> {
        let all = tokio::fs::read(self.in_memory()?.machine.dir().console_log()).await.unwrap_or_default();
        let from = usize::try_from(offset).ok().filter(|from| *from <= all.len()).unwrap_or(0);
        let until = from.saturating_add(limit).min(all.len());
        Ok((all[from..until].to_vec(), until as u64))
    }
}
