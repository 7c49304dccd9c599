//! The handle to one sandbox.
//!
//! Everything outside the sandbox's task holds an `Arc<Sandbox>`. To use the sandbox, it asks for the [`Live`] machine.
//! To change the sandbox, it sends the task a [`Command`]. Only the task changes the [`Phase`].

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sandling_protocol::{Request, Response, Usage};
use sandling_vmm::machine::{GuestPages, QuickUsage, Usage as HostUsage};
use tokio::sync::{mpsc, oneshot, watch};

use super::activity::{Activity, Call, InUse};
use super::command::Command;
use super::error::{ChangeError, UseError};
use super::phase::Phase;
use super::saves::Saves;
use crate::lifecycle::{self, Refused};
use crate::link::LinkError;
use crate::machine::Live;
use crate::model::{EndReason, Kept, Lifetime, LifetimeChange, SandboxId, SandboxInfo, Standing, State, Timeline};
use crate::network::{CountsView, SandboxNetwork};
use crate::volume::VolumeError;

/// What a sandbox has used.
#[derive(Debug, Clone)]
pub struct SandboxUsage {
    /// QEMU's process.
    pub pid: i32,
    pub host: HostUsage,
    /// Absent while it is paused or stands still.
    pub guest: Option<Usage>,
    pub network: CountsView,
}

/// A handle to one sandbox.
pub struct Sandbox {
    pub(crate) info: SandboxInfo,
    pub(crate) phase: watch::Receiver<Phase>,
    pub(crate) lifetime: watch::Receiver<Lifetime>,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) activity: Arc<Activity>,
    pub(crate) standing: watch::Receiver<Standing>,
    pub(crate) timeline: watch::Receiver<Timeline>,
    pub(crate) network: Arc<SandboxNetwork>,
    /// Whether the guest is being told about a change of its network.
    pub(crate) telling_guest: watch::Receiver<bool>,
    /// Whether its machine is about to be saved and ended.
    pub(crate) hibernating: watch::Receiver<bool>,
    pub(crate) saves: Saves,
}

impl Sandbox {
    pub fn id(&self) -> &SandboxId {
        &self.info.id
    }

    /// Whether another node of the fleet takes it over when this one is lost.
    pub fn has_failover(&self) -> bool {
        self.info.settings.failover.is_some()
    }

    pub fn info(&self) -> SandboxInfo {
        SandboxInfo {
            state: self.phase.borrow().state().shown(),
            lifetime: *self.lifetime.borrow(),
            standing: self.standing.borrow().clone(),
            timeline: self.timeline.borrow().clone(),
            network: self.network.settings(),
            effective: self.network.effective(),
            ..self.info.clone()
        }
    }

    /// The machine, if it can be used right now. Holds the sandbox busy, i.e. not idle, while the guard lives.
    pub(crate) fn live(&self) -> Result<(Arc<Live>, InUse), UseError> {
        let phase = self.phase.borrow();
        let live = phase.live()?;
        lifecycle::decide(phase.state(), &lifecycle::Request::Use)?;
        Ok((live.clone(), self.activity.begin_call()))
    }

    /// Stops the virtual CPUs; memory stays.
    pub async fn pause(&self) -> Result<(), ChangeError> {
        self.change(lifecycle::Request::Pause).await
    }

    pub async fn resume(&self) -> Result<(), ChangeError> {
        self.set_going(lifecycle::Request::Resume).await
    }

    /// Saves it and ends its machine: no memory is held until it is woken.
    pub async fn hibernate(&self) -> Result<(), ChangeError> {
        self.hibernate_keeping(Kept::Everything).await
    }

    pub async fn hibernate_keeping(&self, kept: Kept) -> Result<(), ChangeError> {
        // The copies that are being written end with the machine.
        let _nothing_pending = self.saves.quiet().await;
        self.change(lifecycle::Request::Hibernate(kept)).await
    }

    /// Goes on where it hibernated. However many ask for it, it happens once; one that runs is left alone.
    pub async fn wake(&self) -> Result<(), ChangeError> {
        self.set_going(lifecycle::Request::Wake).await
    }

    /// Boots it from its disk, also if its memory was saved. What its guest had not written to the disk is lost.
    pub async fn boot(&self) -> Result<(), ChangeError> {
        self.set_going(lifecycle::Request::Boot).await
    }

    async fn set_going(&self, request: lifecycle::Request) -> Result<(), ChangeError> {
        let runs = matches!(*self.phase.borrow(), Phase::Running(_));
        self.change(request).await?;
        if !runs {
            self.guest_told().await;
        }
        Ok(())
    }

    /// Waits until the guest has been told about changes of its network, or could not be.
    pub(crate) async fn guest_told(&self) {
        // A task that has ended tells the guest nothing more.
        let _ = self.telling_guest.clone().wait_for(|telling| !telling).await;
    }

    /// Begins a call, after a hibernation that has begun is over. The next hibernation waits a moment for its end.
    pub async fn steady(&self) -> Call {
        let mut hibernating = self.hibernating.clone();
        loop {
            // In this order: a hibernation that this does not see sees the call.
            let call = self.activity.call();
            if !*hibernating.borrow() {
                return call;
            }
            drop(call);
            // A task that has ended hibernates nothing.
            if hibernating.wait_for(|hibernating| !hibernating).await.is_err() {
                return self.activity.call();
            }
        }
    }

    pub fn hibernates(&self) -> bool {
        matches!(*self.phase.borrow(), Phase::Hibernated)
    }

    /// Ends it: the machine, its memory and its disk are gone when this returns.
    pub async fn end(&self, reason: EndReason) -> Result<(), ChangeError> {
        self.change(lifecycle::Request::End(reason)).await
    }

    /// Continues it as its dead engine left it. If that fails, it ends.
    pub(crate) async fn take_over(&self) -> Result<(), ChangeError> {
        self.change(lifecycle::Request::TakeOver(self.info.state)).await
    }

    /// Waits until it is known whether this engine could take it over.
    pub(crate) async fn settled(&self) {
        // A task that has ended has settled it.
        let _ = self.phase.clone().wait_for(|phase| !matches!(phase, Phase::Orphaned)).await;
    }

    /// Leaves the machine to itself, for another engine to take over.
    pub(crate) async fn let_go(&self) {
        // A task that has ended has nothing to let go of.
        if self.commands.send(Command::LetGo).await.is_ok() {
            self.commands.closed().await;
        }
    }

    /// Lets the machine stand still, or go on, while it is not known which node has the sandbox.
    pub async fn set_fence(&self, fenced: bool) {
        // A task that has ended runs nothing.
        let _ = self.commands.send(Command::SetFence(fenced)).await;
    }

    /// Ends the machine of a sandbox that another node has. Its row stays.
    pub(crate) async fn abandon(&self) {
        let (answer, answered) = oneshot::channel();
        if self.commands.send(Command::Abandon { answer }).await.is_ok() {
            let _ = answered.await;
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

    async fn change(&self, request: lifecycle::Request) -> Result<(), ChangeError> {
        let (answer, answered) = oneshot::channel();
        let gone = lifecycle::decide(State::Ended, &request).map(drop).map_err(ChangeError::from);
        if self.commands.send(Command::Change { request, answer }).await.is_err() {
            return gone;
        }
        answered.await.unwrap_or(gone)
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
        let runs = matches!(*self.phase.borrow(), Phase::Running(_));
        let live = self.in_memory()?;
        let usage = self.usage_of(&live).await?;
        if !runs {
            return Ok(usage);
        }
        match live.link.call(Request::Usage).await? {
            Response::Usage(guest) => Ok(SandboxUsage { guest: Some(guest), ..usage }),
            _ => Err(LinkError::Unexpected.into()),
        }
    }

    /// What it has used so far, seen from the host alone: an idle guest stays idle.
    pub async fn host_usage(&self) -> Result<SandboxUsage, UseError> {
        let live = self.in_memory()?;
        self.usage_of(&live).await
    }

    /// The part of [`Self::host_usage`] that is cheap to read.
    pub async fn quick_usage(&self) -> Result<QuickUsage, UseError> {
        let live = self.in_memory()?;
        live.machine.quick_usage().await.map_err(|error| LinkError::Closed(error.to_string()).into())
    }

    async fn usage_of(&self, live: &Live) -> Result<SandboxUsage, UseError> {
        let host = live.machine.usage().await.map_err(|error| LinkError::Closed(error.to_string()))?;
        Ok(SandboxUsage { pid: live.machine.pid(), host, guest: None, network: self.network_counts() })
    }

    /// How much of its memory it shares, and how much is its own by now.
    pub(crate) async fn guest_pages(&self) -> Result<GuestPages, UseError> {
        let pages = self.in_memory()?.machine.guest_pages().await;
        pages.map_err(|error| LinkError::Closed(error.to_string()).into())
    }

    fn in_memory(&self) -> Result<Arc<Live>, UseError> {
        self.phase.borrow().live().cloned()
    }

    /// How long it has been idle.
    pub fn idle_for(&self) -> Duration {
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
