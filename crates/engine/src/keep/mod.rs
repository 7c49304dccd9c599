//! The task that owns one sandbox: it changes its state, watches its machine, and ends it when its time is over.

mod end;
mod lessons;
mod network;
mod save;
mod sleep;

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::{mpsc, watch};

use self::lessons::Lessons;
use crate::checkpoint::CheckpointError;
use crate::engine::Engine;
use crate::expiry::{Activity, BACKSTOP, Lifetime};
use crate::lifecycle::{self, Request, State, Verdict};
use crate::network::Network;
use crate::sandbox::{ChangeError, Command, EndReason, Live, Phase, Sandbox, SandboxInfo};
use crate::snapshot::{Saves, Standing};
use crate::stall;
use crate::store::StoreError;
use crate::timeline::{Checkpoint, Timeline};

/// How far the machine's own deadline may lag behind while a sandbox with an idle limit is in use.
const REFRESH: Duration = Duration::from_secs(10);
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
    /// Its guest is being told something of its network.
    learning: watch::Sender<bool>,
    lessons: Lessons,
    /// Absent while it hibernates.
    live: Option<Arc<Live>>,
    activity: Arc<Activity>,
    stalled: Arc<watch::Sender<bool>>,
    /// What the machine was last told.
    told: Option<SystemTime>,
    saves: Saves,
    /// It could not hibernate, and does not try again before.
    awake_until: Option<Instant>,
}

/// Registers a sandbox and starts its task; nothing if the engine is closing. Without a machine, it hibernates.
pub(crate) fn start(engine: &Arc<Engine>, live: Option<Live>, info: SandboxInfo) -> Option<Arc<Sandbox>> {
    let live = live.map(Arc::new);
    let (phase, observed) = watch::channel(live.clone().map_or(Phase::Hibernated, Phase::Running));
    let (lifetime, seen) = watch::channel(info.lifetime);
    let (standing, stood) = watch::channel(info.standing.clone());
    let (timeline, past) = watch::channel(info.timeline.clone());
    let (learning, learned) = watch::channel(false);
    let network = Network::new(info.network.clone(), engine.kept_of(&info));
    let (commands, inbox) = mpsc::channel(64);
    let activity = Activity::new();
    let saves = Saves::default();
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
        learning: learned,
        saves: saves.clone(),
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
        learning,
        lessons: Lessons::default(),
        live,
        activity,
        stalled,
        told: None,
        saves,
        awake_until: None,
    };
    // Before anybody hears of it: its time ends even if this process does so now.
    keeper.tell_machine(sandbox.lifetime.borrow().left(Duration::ZERO).map(|(left, _)| left));
    let registered = engine.register(sandbox.clone());
    // Now that whoever changes a default finds it.
    sandbox.network.renew(engine, &sandbox.info);
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
        self.catch_up();
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
                Some(taught) = self.lessons.next() => self.taught(taught),
                why = lost(live.as_deref()) => return self.finish(EndReason::GuestDied(why)).await,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Carries out a command. True when there is nothing left to look after.
    async fn obey(&mut self, command: Command) -> bool {
        match command {
            Command::SetLifetime { change, answer } => {
                let lifetime = self.info.lifetime.changed(change);
                let _ = answer.send(self.become_so(SandboxInfo { lifetime, ..self.info.clone() }));
                false
            }
            Command::SetNetwork { change, answer } => {
                match self.change_network(change) {
                    Ok(granted) => self.teach_granted(granted, answer),
                    Err(error) => drop(answer.send(Err(error.into()))),
                }
                false
            }
            Command::CatchUp => {
                self.catch_up();
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
                let mut info = self.info.clone();
                if let Some(checkpoint) = checkpoint {
                    info.timeline.add(checkpoint, spared);
                }
                info.standing.saved = Some(snapshot);
                let _ = answer.send(self.become_so(info));
                false
            }
            Command::Rewind { to, answer } => {
                // The caller may have gone; the change stands.
                let _ = answer.send(self.rewind(&to).await);
                false
            }
            Command::Folded { layers, answer } => {
                let mut info = self.info.clone();
                info.standing.disk.retain(|layer| !layers.contains(layer));
                self.is_so(info);
                let _ = answer.send(());
                false
            }
            Command::NameCheckpoint { which, name, answer } => {
                let _ = answer.send(self.name_checkpoint(&which, name));
                false
            }
            Command::LetGo => {
                self.unplug();
                true
            }
            Command::Change { request, reason, answer } => {
                let verdict = lifecycle::decide(self.phase.borrow().state(), request);
                let (result, ended) = match verdict {
                    Err(refused) => (Err(refused.into()), false),
                    Ok(Verdict::NothingToDo) => (Ok(()), false),
                    Ok(Verdict::Go(State::Ended)) => match self.give_up_image(&reason) {
                        Ok(()) => {
                            self.finish(reason).await;
                            (Ok(()), true)
                        }
                        Err(error) => (Err(error.into()), false),
                    },
                    Ok(Verdict::Go(_)) => (self.switch(request).await, false),
                };
                // The caller may have gone; the change stands.
                let _ = answer.send(result);
                ended
            }
        }
    }

    /// Writes down what is to become of it, and only then is it so. Otherwise it is as it was.
    fn become_so(&mut self, info: SandboxInfo) -> Result<(), StoreError> {
        let sleeps = [&info, &self.info].iter().any(|info| info.state == State::Hibernated);
        match self.engine.upgrade() {
            // What it is woken from, and that it was.
            Some(engine) if sleeps => engine.store.update_sandbox_lastingly(&info)?,
            Some(engine) => engine.store.update_sandbox(&info)?,
            None => {}
        }
        self.tell(info);
        Ok(())
    }

    /// Writes down what has become of it already. If that fails, its row is behind in what can be found out again, and
    /// the next thing that is written makes up for it.
    fn is_so(&mut self, info: SandboxInfo) {
        self.tell(info);
        if let Some(engine) = self.engine.upgrade()
            && let Err(error) = engine.store.update_sandbox(&self.info)
        {
            tracing::warn!(sandbox = %self.info.id, error = &error as &dyn std::error::Error, "what changed about it was not written down");
        }
    }

    fn tell(&mut self, info: SandboxInfo) {
        self.info = info;
        self.lifetime.send_replace(self.info.lifetime);
        self.standing.send_replace(self.info.standing.clone());
        self.timeline.send_replace(self.info.timeline.clone());
    }

    fn name_checkpoint(&mut self, which: &str, name: Option<String>) -> Result<Checkpoint, CheckpointError> {
        let mut info = self.info.clone();
        let named = info.timeline.rename(which, name)?;
        self.become_so(info).map_err(ChangeError::Store)?;
        Ok(named)
    }

    async fn switch(&mut self, request: Request) -> Result<(), ChangeError> {
        match (request, self.live.clone()) {
            (Request::Hibernate, Some(live)) => self.hibernate(&live).await,
            (_, None) => self.wake().await,
            (Request::Pause, Some(live)) => self.pause(live).await,
            (_, Some(live)) => self.resume(live).await,
        }
    }

    async fn pause(&mut self, live: Arc<Live>) -> Result<(), ChangeError> {
        live.link.hold(true);
        live.machine.stop().await.map_err(ChangeError::Machine)?;
        if let Err(error) = self.become_so(SandboxInfo { state: State::Paused, ..self.info.clone() }) {
            self.go_on(&live).await?;
            return Err(error.into());
        }
        self.is_now(Phase::Paused(live), "paused");
        Ok(())
    }

    /// Written down first: whoever takes over lets it run in any case, and pauses what was paused.
    async fn resume(&mut self, live: Arc<Live>) -> Result<(), ChangeError> {
        self.become_so(SandboxInfo { state: State::Running, ..self.info.clone() })?;
        if let Err(error) = self.go_on(&live).await {
            self.is_so(SandboxInfo { state: State::Paused, ..self.info.clone() });
            return Err(error);
        }
        self.is_now(Phase::Running(live), "resumed");
        self.catch_up();
        Ok(())
    }

    async fn go_on(&self, live: &Live) -> Result<(), ChangeError> {
        live.machine.cont().await.map_err(ChangeError::Machine)?;
        live.link.hold(false);
        Ok(())
    }

    /// Says what was written down.
    fn is_now(&self, phase: Phase, event: &str) {
        self.record(event, serde_json::json!({}));
        self.phase.send_replace(phase);
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
