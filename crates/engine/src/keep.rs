//! The task that owns one sandbox: it changes its state, watches its machine, and ends it when its time is over.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use sandling_vmm::machine::MachineError;
use tokio::sync::{mpsc, watch};

use crate::engine::Engine;
use crate::expiry::{Activity, BACKSTOP, Lifetime};
use crate::lifecycle::{self, Request, State, Verdict};
use crate::sandbox::{ChangeError, Command, EndReason, Live, Phase, Sandbox, SandboxInfo};
use crate::stall;

/// How far the machine's own deadline may lag behind while a sandbox with an idle limit is in use.
const REFRESH: Duration = Duration::from_secs(10);
const FAR_AWAY: Duration = Duration::from_secs(86_400);

struct Keeper {
    engine: Weak<Engine>,
    info: SandboxInfo,
    dir: PathBuf,
    phase: watch::Sender<Phase>,
    lifetime: watch::Sender<Lifetime>,
    live: Arc<Live>,
    activity: Arc<Activity>,
    /// What the machine was last told.
    told: Option<SystemTime>,
}

/// Registers a sandbox and starts its task; nothing if the engine is closing.
pub(crate) fn start(engine: &Arc<Engine>, live: Live, info: SandboxInfo) -> Option<Arc<Sandbox>> {
    let live = Arc::new(live);
    let (phase, observed) = watch::channel(Phase::Running(live.clone()));
    let (lifetime, seen) = watch::channel(info.lifetime);
    let (commands, inbox) = mpsc::channel(64);
    let activity = Activity::new();
    let stalled = stall::watch(&live, observed.clone(), noting(engine, &info));
    let sandbox = Arc::new(Sandbox {
        info: info.clone(),
        phase: observed,
        lifetime: seen,
        stalled,
        commands,
        activity: activity.clone(),
    });
    let dir = live.machine.dir().path().to_owned();
    let keeper = Keeper { engine: Arc::downgrade(engine), info, dir, phase, lifetime, live, activity, told: None };
    let registered = engine.register(sandbox.clone());
    tokio::spawn(keeper.run(inbox));
    // Not registered, it is dropped here, and its task ends the machine.
    registered.then_some(sandbox)
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
        let mut died = self.live.machine.died();
        let mut closed = self.live.link.closed();
        loop {
            let over = self.lifetime.borrow().left(self.activity.idle_for());
            self.tell_machine(over.as_ref().map(|(left, _)| *left));
            let pause = match over {
                Some((Duration::ZERO, reason)) => return self.finish(reason).await,
                Some((left, _)) => left.min(REFRESH),
                None => FAR_AWAY,
            };
            tokio::select! {
                command = inbox.recv() => match command {
                    Some(command) => if self.obey(command).await { return },
                    None => return self.finish(EndReason::EngineClosed).await,
                },
                death = told(&mut died) => return self.finish(EndReason::GuestDied(death)).await,
                why = told(&mut closed) => return self.finish(EndReason::GuestDied(why)).await,
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
                if let Some(engine) = self.engine.upgrade()
                    && let Err(error) = engine.store.update_sandbox(&self.info)
                {
                    tracing::warn!(sandbox = %self.info.id, error = &error as &dyn std::error::Error, "its lifetime was not written down");
                }
                let _ = answer.send(());
                false
            }
            Command::LetGo => true,
            Command::Change { request, reason, answer } => {
                let verdict = lifecycle::decide(self.phase.borrow().state(), request);
                let (result, ended) = match verdict {
                    Err(refused) => (Err(refused.into()), false),
                    Ok(Verdict::NothingToDo) => (Ok(()), false),
                    Ok(Verdict::Go(State::Ended)) => {
                        self.finish(reason).await;
                        (Ok(()), true)
                    }
                    Ok(Verdict::Go(_)) => (self.switch(request).await.map_err(ChangeError::Machine), false),
                };
                // The caller may have gone; the change stands.
                let _ = answer.send(result);
                ended
            }
        }
    }

    async fn switch(&mut self, request: Request) -> Result<(), MachineError> {
        let live = &self.live;
        let phase = if request == Request::Pause {
            live.link.hold(true);
            live.machine.stop().await?;
            Phase::Paused(live.clone())
        } else {
            live.machine.cont().await?;
            live.link.hold(false);
            Phase::Running(live.clone())
        };
        self.record(if request == Request::Pause { "paused" } else { "resumed" }, serde_json::json!({}));
        self.phase.send_replace(phase);
        Ok(())
    }

    /// Ends the machine, removes its directory, writes it down, and only then says so.
    async fn finish(&mut self, reason: EndReason) {
        if let Err(error) = self.live.machine.end().await {
            tracing::warn!(sandbox = %self.info.id, error = &error as &dyn std::error::Error, "the machine could not be ended");
        } else if let Err(error) = std::fs::remove_dir_all(&self.dir) {
            tracing::warn!(sandbox = %self.info.id, %error, "the sandbox's directory could not be removed");
        }
        if let Some(engine) = self.engine.upgrade() {
            if let Err(error) = engine.store.end_sandbox(self.info.id.as_str(), &reason.to_string()) {
                tracing::error!(sandbox = %self.info.id, error = &error as &dyn std::error::Error, "its end was not written down");
            }
            engine.unregister(&self.info.id);
        }
        self.record("ended", serde_json::json!({ "why": reason.to_string() }));
        self.phase.send_replace(Phase::Ended(reason));
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
        if let Err(error) = self.live.machine.set_deadline(unix_ms) {
            tracing::warn!(sandbox = %self.info.id, error = &error as &dyn std::error::Error, "the machine's own deadline could not be set");
        }
    }
}
