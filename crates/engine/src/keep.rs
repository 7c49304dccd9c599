//! The task that owns one sandbox: it changes its state, watches its machine, and ends it when its time is over.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use sandling_vmm::machine::Afterwards;
use tokio::sync::{mpsc, watch};

use crate::create::CreateError;
use crate::engine::Engine;
use crate::expiry::{Activity, BACKSTOP, Lifetime};
use crate::lifecycle::{self, Refused, Request, State, Verdict};
use crate::network::{Network, NetworkChange, NetworkError, NetworkSettings};
use crate::sandbox::{ChangeError, Command, EndReason, Live, Phase, Sandbox, SandboxInfo};
use crate::snapshot::{Moving, Save, Saving, SnapshotError, SnapshotId, Standing, mend};
use crate::store::Listed;
use crate::timeline::{Cause, Checkpoint, Mark, Timeline};
use crate::volume::{self, OnVolumes, VolumeError};
use crate::{hibernate, made, stall};

/// How far the machine's own deadline may lag behind while a sandbox with an idle limit is in use.
const REFRESH: Duration = Duration::from_secs(10);
/// After a sandbox could not hibernate, the next try waits so long.
const RETRY_SLEEP: Duration = Duration::from_secs(60);
/// What the guest has not written out by then, it writes out when it is woken.
const WRITTEN_WITHIN: Duration = Duration::from_secs(15);
/// No save takes longer.
const LONGEST_SAVE: Duration = Duration::from_secs(600);
const FAR_AWAY: Duration = Duration::from_secs(86_400);

struct Keeper {
    engine: Weak<Engine>,
    info: SandboxInfo,
    dir: PathBuf,
    phase: watch::Sender<Phase>,
    lifetime: watch::Sender<Lifetime>,
    standing: watch::Sender<Standing>,
    timeline: watch::Sender<Timeline>,
    network: Arc<Network>,
    /// Absent while it hibernates.
    live: Option<Arc<Live>>,
    activity: Arc<Activity>,
    stalled: Arc<watch::Sender<bool>>,
    /// What the machine was last told.
    told: Option<SystemTime>,
    /// When it last could not hibernate.
    drowsy_since: Option<std::time::Instant>,
}

/// Registers a sandbox and starts its task; nothing if the engine is closing. Without a machine, it hibernates.
pub(crate) fn start(engine: &Arc<Engine>, live: Option<Live>, info: SandboxInfo) -> Option<Arc<Sandbox>> {
    let live = live.map(Arc::new);
    let (phase, observed) = watch::channel(live.clone().map_or(Phase::Hibernated, Phase::Running));
    let (lifetime, seen) = watch::channel(info.lifetime);
    let (standing, stood) = watch::channel(info.standing.clone());
    let (timeline, past) = watch::channel(info.timeline.clone());
    let network = Network::new(info.network.clone());
    let (commands, inbox) = mpsc::channel(64);
    let activity = Activity::new();
    let stalled = Arc::new(watch::Sender::new(false));
    if let Some(live) = &live {
        stall::watch(live, observed.clone(), stalled.clone(), noting(engine, &info));
    }
    let sandbox = Arc::new(Sandbox {
        info: info.clone(),
        phase: observed,
        lifetime: seen,
        stalled: stalled.subscribe(),
        commands,
        activity: activity.clone(),
        standing: stood,
        timeline: past,
        network: network.clone(),
        saves: Default::default(),
    });
    let dir = engine.config.home.sandboxes().join(info.id.as_str());
    let mut keeper = Keeper {
        engine: Arc::downgrade(engine),
        info,
        dir,
        phase,
        lifetime,
        standing,
        timeline,
        network,
        live,
        activity,
        stalled,
        told: None,
        drowsy_since: None,
    };
    // Before anybody hears of it: its time ends even if this process does so now.
    keeper.tell_machine(sandbox.lifetime.borrow().left(Duration::ZERO).map(|(left, _)| left));
    let registered = engine.register(sandbox.clone());
    tokio::spawn(keeper.run(inbox));
    // Not registered, it is dropped here, and its task ends the machine.
    registered.then_some(sandbox)
}

/// Waits until the machine has died or its guest is beyond reach, and says why. There may be none to lose.
async fn lost(live: Option<&Live>) -> String {
    let Some(live) = live else { return std::future::pending().await };
    let (mut died, mut closed) = (live.machine.died(), live.link.closed());
    tokio::select! {
        death = told(&mut died) => death,
        why = told(&mut closed) => why,
    }
}

/// Writes events of a sandbox down for others than its own task.
fn noting(engine: &Arc<Engine>, info: &SandboxInfo) -> impl Fn(&str) + Send + 'static {
    let (engine, id, workspace) = (Arc::downgrade(engine), info.id.clone(), info.workspace.clone());
    move |kind| {
        tracing::warn!(sandbox = %id, kind, "a sandbox stands still while the host's disk is full");
        if let Some(engine) = engine.upgrade() {
            // On a full disk this fails, too; then the log has it.
            let _ = engine.record(&id, &workspace, kind, serde_json::json!({}));
        }
    }
}

/// Waits until somebody says something, and repeats it.
async fn told<T: ToString>(receiver: &mut watch::Receiver<Option<T>>) -> String {
    let said = receiver.wait_for(Option::is_some).await;
    said.ok().and_then(|said| said.as_ref().map(ToString::to_string)).unwrap_or_default()
}

impl Keeper {
    async fn run(mut self, mut inbox: mpsc::Receiver<Command>) {
        self.plug_in().await;
        loop {
            let live = self.live.clone();
            let over = self.time_left();
            self.tell_machine(over.as_ref().map(|(left, _)| *left));
            let pause = match over {
                Some((Duration::ZERO, EndReason::Ttl)) if self.sleeps_at_the_end() => {
                    self.sleep_instead_of_ending().await;
                    continue;
                }
                Some((Duration::ZERO, reason)) => return self.finish(reason).await,
                Some((left, _)) => left.min(REFRESH),
                None => FAR_AWAY,
            };
            let sleepy = self.sleepy();
            if sleepy == Some(Duration::ZERO) {
                self.fall_asleep().await;
                continue;
            }
            let pause = sleepy.map_or(pause, |sleepy| pause.min(sleepy));
            tokio::select! {
                command = inbox.recv() => match command {
                    Some(command) => if self.obey(command).await { return },
                    None => return self.finish(EndReason::EngineClosed).await,
                },
                why = lost(live.as_deref()) => return self.finish(EndReason::GuestDied(why)).await,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Carries out a command. True when there is nothing left to look after.
    async fn obey(&mut self, command: Command) -> bool {
        match command {
            Command::SetLifetime { change, answer } => {
                self.info.lifetime = self.lifetime.borrow().changed(change);
                self.lifetime.send_replace(self.info.lifetime);
                self.write_down();
                let _ = answer.send(());
                false
            }
            Command::SetNetwork { change, answer } => {
                let _ = answer.send(self.set_network(change));
                false
            }
            Command::Freeze { name, listed, mark, volumes, answer } => {
                // Nobody may be waiting any more; then the copy of the machine is dropped, and ends.
                let _ = answer.send(self.freeze(name, listed, mark, volumes).await);
                false
            }
            Command::CopyVolume { from, to, answer } => {
                let _ = answer.send(self.copy_volume(&from, &to).await);
                false
            }
            Command::Saved { snapshot, checkpoint, spared, answer } => {
                if let Some(checkpoint) = checkpoint {
                    self.info.timeline.add(checkpoint, spared);
                }
                self.stand(Standing { saved: Some(snapshot), ..self.info.standing.clone() });
                let _ = answer.send(());
                false
            }
            Command::Rewind { to, answer } => {
                // The caller may have gone; the change stands.
                let _ = answer.send(self.rewind(&to).await);
                false
            }
            Command::Folded { layers } => {
                let mut standing = self.info.standing.clone();
                standing.disk.retain(|layer| !layers.contains(layer));
                self.stand(standing);
                false
            }
            Command::NameCheckpoint { which, name, answer } => {
                let named = self.info.timeline.rename(&which, name);
                self.stand(self.info.standing.clone());
                let _ = answer.send(named);
                false
            }
            Command::LetGo => {
                self.network.detach();
                true
            }
            Command::Change { request, reason, answer } => {
                let verdict = lifecycle::decide(self.phase.borrow().state(), request);
                let (result, ended) = match verdict {
                    Err(refused) => (Err(refused.into()), false),
                    Ok(Verdict::NothingToDo) => (Ok(()), false),
                    Ok(Verdict::Go(State::Ended)) => {
                        self.finish(reason).await;
                        (Ok(()), true)
                    }
                    Ok(Verdict::Go(_)) => (self.switch(request).await, false),
                };
                // The caller may have gone; the change stands.
                let _ = answer.send(result);
                ended
            }
        }
    }

    /// Puts a gateway at the other end of the machine's card. Frames wait until then; without one they wait for ever,
    /// and the sandbox has no network.
    async fn plug_in(&self) {
        let (Some(engine), Some(live)) = (self.engine.upgrade(), &self.live) else { return };
        if let Err(error) = self.network.attach(&engine, &self.info, &live.machine).await {
            tracing::error!(sandbox = %self.info.id, error = &error as &dyn std::error::Error, "it has no network");
            self.record("network_failed", serde_json::json!({ "why": error.to_string() }));
        }
    }

    fn set_network(&mut self, change: NetworkChange) -> Result<NetworkSettings, NetworkError> {
        let engine = self.engine.upgrade().ok_or(NetworkError::Ended)?;
        let settings = self.info.network.changed(change)?;
        let detail = serde_json::json!({ "policy": settings.policy });
        // Written down first: what was acknowledged holds after a crash, too.
        engine.store.update_sandbox(&SandboxInfo { network: settings.clone(), ..self.info.clone() })?;
        self.info.network = settings.clone();
        self.network.apply(&engine, &self.info.workspace, settings.clone());
        self.record("network_changed", detail);
        Ok(settings)
    }

    fn write_down(&self) {
        if let Some(engine) = self.engine.upgrade()
            && let Err(error) = engine.store.update_sandbox(&self.info)
        {
            tracing::warn!(sandbox = %self.info.id, error = &error as &dyn std::error::Error, "what changed about it was not written down");
        }
    }

    /// Writes down what it stands on and where it can go back to.
    fn stand(&mut self, standing: Standing) {
        self.info.standing = standing;
        self.standing.send_replace(self.info.standing.clone());
        self.timeline.send_replace(self.info.timeline.clone());
        self.write_down();
    }

    /// Stops the machine for as long as it takes to copy it. A machine that was paused stays so.
    async fn freeze(
        &mut self,
        name: Option<String>,
        listed: Listed,
        mark: Option<Mark>,
        volumes: Option<OnVolumes>,
    ) -> Result<(Saving, Option<Checkpoint>), SnapshotError> {
        let state = self.phase.borrow().state();
        lifecycle::decide(state, Request::Save)?;
        let volumes = match volumes {
            None if self.info.volumes.is_empty() => Vec::new(),
            None if mark.is_some() => return Err(VolumeError::NoCheckpoints.into()),
            None => return Err(VolumeError::NotSaid.into()),
            Some(then) => volume::copies(&self.info.volumes, then, listed),
        };
        let engine = self.engine.upgrade().ok_or(SnapshotError::CutOff)?;
        let afterwards = if state == State::Paused { Afterwards::Stopped } else { Afterwards::Running };
        let live = self.live.clone().ok_or(Refused::Hibernated)?;
        let id = self.intend(&engine)?;
        live.link.hold(true);
        let info = &self.info;
        let save = Save { engine: &engine, machine: &live.machine, info, id, name, listed, afterwards, volumes };
        let saving = save.freeze().await;
        live.link.hold(state == State::Paused);
        let saving = saving?;
        let checkpoint = mark.map(|mark| self.info.timeline.begin(mark, saving.id().clone()));
        // The disk stands on the new layer already, whatever becomes of the rest.
        self.stand(saving.standing.clone());
        Ok((saving, checkpoint))
    }

    /// Writes down what the next save is going to be called before it begins: whoever takes over in the middle of it
    /// can tell what the disk stands on.
    fn intend(&mut self, engine: &Engine) -> Result<SnapshotId, SnapshotError> {
        mend::finish_moving(engine, &self.dir, &self.info.standing)?;
        let id = SnapshotId::fresh();
        let moving = Moving { id: id.clone(), from: self.info.standing.top().to_owned() };
        let standing = Standing { moving: Some(moving), ..self.info.standing.clone() };
        let info = SandboxInfo { standing, ..self.info.clone() };
        engine.store.update_sandbox(&info)?;
        self.info = info;
        Ok(id)
    }

    /// A machine that stands still has written out all that its guest has flushed.
    async fn copy_volume(&mut self, from: &Path, to: &Path) -> Result<(), VolumeError> {
        let copy = || volume::copy_now(from.to_owned(), to.to_owned());
        let state = self.phase.borrow().state();
        let Some(live) = self.live.clone().filter(|_| state == State::Running) else { return copy().await };
        self.write_out(&live).await;
        live.link.hold(true);
        live.machine.stop().await?;
        let copied = copy().await;
        let went_on = live.machine.cont().await;
        live.link.hold(false);
        went_on?;
        copied
    }

    /// What the guest holds back is written to its volumes, if it can.
    async fn write_out(&self, live: &Live) {
        let sync = sandling_protocol::Request::Sync;
        if !self.info.volumes.is_empty()
            && let Err(error) = live.link.call_within(WRITTEN_WITHIN, sync).await
        {
            tracing::warn!(sandbox = %self.info.id, error = &error as &dyn std::error::Error, "its volumes were not written out");
        }
    }

    async fn switch(&mut self, request: Request) -> Result<(), ChangeError> {
        match (request, self.live.clone()) {
            (Request::Hibernate, Some(live)) => self.hibernate(&live).await,
            (_, None) => self.wake().await,
            (Request::Pause, Some(live)) => {
                live.link.hold(true);
                live.machine.stop().await.map_err(ChangeError::Machine)?;
                self.is_now(Phase::Paused(live), "paused");
                Ok(())
            }
            (_, Some(live)) => {
                live.machine.cont().await.map_err(ChangeError::Machine)?;
                live.link.hold(false);
                self.is_now(Phase::Running(live), "resumed");
                Ok(())
            }
        }
    }

    fn is_now(&mut self, phase: Phase, event: &str) {
        self.info.state = phase.state();
        self.write_down();
        self.record(event, serde_json::json!({}));
        self.phase.send_replace(phase);
    }

    async fn hibernate(&mut self, live: &Arc<Live>) -> Result<(), ChangeError> {
        let engine = self.engine.upgrade().ok_or(SnapshotError::CutOff)?;
        let paused = self.phase.borrow().state() == State::Paused;
        if !paused {
            self.write_out(live).await;
        }
        let id = self.intend(&engine)?;
        live.link.hold(true);
        let frozen = hibernate::freeze(&engine, live, &self.info, id).await;
        let saved = match frozen {
            Ok(saving) => {
                // As in a snapshot: the disk has moved on, whatever becomes of the rest.
                self.stand(saving.standing.clone());
                saving.write().await
            }
            Err(error) => Err(error),
        };
        let standing = match saved {
            Ok((snapshot, _)) => snapshot.standing(),
            Err(error) => {
                // It goes on as it was.
                if !paused {
                    let _ = live.machine.cont().await;
                    live.link.hold(false);
                }
                return Err(error.into());
            }
        };
        // Written down before the machine ends: whoever comes next finds one or the other.
        self.info.state = State::Hibernated;
        self.stand(standing);
        self.live = None;
        self.told = None;
        self.is_now(Phase::Hibernated, "hibernated");
        self.network.detach();
        made::end_and_remove(&live.machine, &self.dir).await;
        Ok(())
    }

    async fn wake(&mut self) -> Result<(), ChangeError> {
        let engine = self.engine.upgrade().ok_or(SnapshotError::CutOff)?;
        let live = Arc::new(hibernate::wake(&engine, &self.info).await?);
        self.live = Some(live.clone());
        self.plug_in().await;
        stall::watch(&live, self.phase.subscribe(), self.stalled.clone(), noting(&engine, &self.info));
        if self.info.lifetime.sleep.is_free {
            self.info.lifetime.from = jiff::Timestamp::now();
            self.lifetime.send_replace(self.info.lifetime);
        }
        self.is_now(Phase::Running(live), "woken");
        Ok(())
    }

    /// How long is left of its time, which need not pass while it hibernates.
    fn time_left(&self) -> Option<(Duration, EndReason)> {
        let lifetime = *self.lifetime.borrow();
        if self.live.is_none() && lifetime.sleep.is_free {
            return None;
        }
        let (left, reason) = lifetime.left(self.activity.idle_for())?;
        match self.drowsy_since {
            // Its work would be lost if it ended now; it tries to sleep again a little later.
            Some(tried) if lifetime.sleep.at_the_end => {
                Some((left.max(RETRY_SLEEP.saturating_sub(tried.elapsed())), reason))
            }
            _ => Some((left, reason)),
        }
    }

    fn sleeps_at_the_end(&self) -> bool {
        self.lifetime.borrow().sleep.at_the_end && self.live.is_some()
    }

    async fn sleep_instead_of_ending(&mut self) {
        // The machine's own deadline must not come in the middle of the save.
        self.tell_machine(Some(LONGEST_SAVE));
        self.fall_asleep().await;
    }

    /// Falls asleep where a checkpoint was made, and wakes there. Where it was is a checkpoint already, unless it
    /// slept. One that cannot be woken is left asleep, to be woken later.
    async fn rewind(&mut self, to: &Checkpoint) -> Result<Option<u64>, ChangeError> {
        lifecycle::decide(self.phase.borrow().state(), Request::Hibernate)?;
        let engine = self.engine.upgrade().ok_or(SnapshotError::CutOff)?;
        let found = engine.store.snapshot(&to.snapshot).map_err(SnapshotError::from)?;
        let (snapshot, _) = found.ok_or(SnapshotError::Unknown)?;
        // While there is still a machine to lose.
        snapshot.source(&engine).await.map_err(CreateError::from)?;
        let slept = self.info.standing.restored.clone().filter(|_| self.live.is_none());
        if let Some(slept) = slept.filter(|slept| !self.info.timeline.snapshots().any(|known| known == slept)) {
            let mark = Mark::new(Cause::Rewind, &format!("rewind to {}", to.number));
            let checkpoint = self.info.timeline.begin(mark, slept);
            self.info.timeline.add(checkpoint, Some(to.number));
        }
        let was = self.info.timeline.current;
        self.info.timeline.went_to(to.number);
        self.info.state = State::Hibernated;
        self.stand(snapshot.standing());
        self.record("rewound", serde_json::json!({ "to": to.number, "was": was }));
        self.told = None;
        self.phase.send_replace(Phase::Hibernated);
        if let Some(live) = self.live.take() {
            live.link.hold(true);
            self.network.detach();
            made::end_and_remove(&live.machine, &self.dir).await;
        }
        self.wake().await?;
        Ok(was)
    }

    /// How long until a persistent sandbox hibernates; nothing if it never does by itself.
    fn sleepy(&self) -> Option<Duration> {
        let after = self.engine.upgrade()?.config.hibernate_after?;
        let may = self.lifetime.borrow().persistent && self.live.is_some();
        (may && self.drowsy_since.is_none_or(|tried| tried.elapsed() > RETRY_SLEEP))
            .then(|| after.saturating_sub(self.activity.idle_for()))
    }

    async fn fall_asleep(&mut self) {
        if let Some(live) = self.live.clone()
            && let Err(error) = self.hibernate(&live).await
        {
            self.drowsy_since = Some(std::time::Instant::now());
            tracing::warn!(sandbox = %self.info.id, error = &error as &dyn std::error::Error, "a sandbox could not hibernate");
        }
    }

    /// Ends the machine, removes its directory, writes it down, and only then says so.
    async fn finish(&mut self, reason: EndReason) {
        self.network.detach();
        if let Some(live) = self.live.take() {
            self.let_go_of_volumes(&live, &reason).await;
            made::end_and_remove(&live.machine, &self.dir).await;
        }
        if let Some(engine) = self.engine.upgrade() {
            if let Err(error) = engine.store.end_sandbox(self.info.id.as_str(), &reason.to_string()) {
                tracing::error!(sandbox = %self.info.id, error = &error as &dyn std::error::Error, "its end was not written down");
            }
            engine.unregister(&self.info.id);
            if !self.info.volumes.is_empty()
                && let Err(error) = engine.drop_private_volumes(&self.info.id)
            {
                tracing::warn!(sandbox = %self.info.id, error = &error as &dyn std::error::Error, "its own copies of volumes were not removed");
            }
            if self.info.standing != Standing::default()
                && let Err(error) = engine.sweep_snapshots().await
            {
                tracing::warn!(error = &error as &dyn std::error::Error, "what it stood on was not swept");
            }
        }
        self.record("ended", serde_json::json!({ "why": reason.to_string() }));
        self.phase.send_replace(Phase::Ended(reason));
    }

    async fn let_go_of_volumes(&self, live: &Live, reason: &EndReason) {
        let Some(engine) = self.engine.upgrade() else { return };
        if self.info.volumes.is_empty() || matches!(reason, EndReason::GuestDied(_)) {
            return;
        }
        if self.phase.borrow().state() == State::Paused {
            // If it does not go on, it cannot unmount either, and that is said then.
            let _ = live.machine.cont().await;
            live.link.hold(false);
        }
        volume::let_go(&engine, live, &self.info).await;
    }

    fn record(&self, kind: &str, detail: serde_json::Value) {
        let Some(engine) = self.engine.upgrade() else { return };
        if let Err(error) = engine.record(&self.info.id, &self.info.workspace, kind, detail) {
            tracing::warn!(sandbox = %self.info.id, error = &error as &dyn std::error::Error, "an event was not written down");
        }
    }

    /// Moves the machine's own deadline, which holds if this process dies. It lies a little later than ours.
    fn tell_machine(&mut self, left: Option<Duration>) {
        let deadline = left.map(|left| SystemTime::now() + left + BACKSTOP);
        let changed = match (self.told, deadline) {
            (Some(told), Some(deadline)) => deadline > told + REFRESH || deadline + REFRESH < told,
            (told, deadline) => told.is_some() != deadline.is_some(),
        };
        if !changed {
            return;
        }
        self.told = deadline;
        let unix_ms = deadline
            .and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok())
            .map(|since| since.as_millis() as u64);
        let Some(live) = &self.live else { return };
        if let Err(error) = live.machine.set_deadline(unix_ms) {
            tracing::warn!(sandbox = %self.info.id, error = &error as &dyn std::error::Error, "the machine's own deadline could not be set");
        }
    }
}
