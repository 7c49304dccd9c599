//! Changing a sandbox's state: recorded in the store, then shown to the handles.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::run::REFRESH;
use super::start::SandboxTask;
use crate::lifecycle::{self, Request, Verdict};
use crate::machine::Live;
use crate::model::{Checkpoint, Kept, SandboxInfo, State};
use crate::sandbox::{ChangeError, CheckpointError, Phase};
use crate::store::StoreError;

/// The machine's own deadline is so much later than the engine's, so that the engine is always first.
const BACKSTOP: Duration = Duration::from_secs(30);
/// A hibernation waits for calls that began at most so long ago.
const LAST_CALLS: Duration = Duration::from_secs(1);

impl SandboxTask {
    /// Records a change and then makes it. If the store fails, nothing changes.
    pub(super) fn commit(&mut self, info: SandboxInfo) -> Result<(), StoreError> {
        let sleeps = [&info, &self.info].iter().any(|info| info.state == State::Hibernated);
        if sleeps {
            // The row names what the sandbox is woken from, so it must survive a failure of the host.
            self.parts.store.update_sandbox_lastingly(&info)?;
        } else {
            self.parts.store.update_sandbox(&info)?;
        }
        self.show(info);
        Ok(())
    }

    /// Records a change that has happened already. If the store fails, the row lacks what can be found out again, and
    /// the next write makes up for it.
    pub(super) fn note(&mut self, info: SandboxInfo) {
        self.show(info);
        if let Err(error) = self.parts.store.update_sandbox(&self.info) {
            tracing::warn!(sandbox = %self.info.id, error = &error as &dyn std::error::Error, "could not record a change of the sandbox");
        }
    }

    fn show(&mut self, info: SandboxInfo) {
        self.info = info;
        self.lifetime.send_replace(self.info.lifetime);
        self.standing.send_replace(self.info.standing.clone());
        self.timeline.send_replace(self.info.timeline.clone());
    }

    pub(super) fn name_checkpoint(&mut self, which: &str, name: Option<String>) -> Result<Checkpoint, CheckpointError> {
        let mut info = self.info.clone();
        let named = info.timeline.rename(which, name)?;
        self.commit(info).map_err(ChangeError::Store)?;
        Ok(named)
    }

    /// Carries out a request if the lifecycle allows it. Nothing else leads to another phase.
    pub(super) async fn change(&mut self, request: Request) -> Result<(), ChangeError> {
        let phase = self.phase.borrow().clone();
        let Verdict::Go(next) = lifecycle::decide(phase.state(), &request)? else { return Ok(()) };
        match (phase, next, request) {
            (_, _, Request::End(reason)) => self.end(reason).await?,
            (phase, _, Request::Rewind(moment)) => {
                self.hibernating.send_replace(true);
                let slept = self.hibernate_at(*moment, phase.live().ok()).await;
                self.hibernating.send_replace(false);
                slept?;
            }
            (Phase::Orphaned, row, _) => self.take_over(row).await?,
            (Phase::Hibernated, _, Request::Boot) => self.wake(Kept::Disk).await?,
            (Phase::Hibernated, ..) => self.wake(Kept::Everything).await?,
            (Phase::Ended(_), ..) => {}
            (Phase::Running(live) | Phase::Stalled(live) | Phase::Paused(live), _, Request::Hibernate(kept)) => {
                self.hibernating.send_replace(true);
                self.last_calls().await;
                let slept = self.hibernate(&live, kept).await;
                self.hibernating.send_replace(false);
                slept?;
            }
            (Phase::Paused(live), ..) => self.resume(live).await?,
            (Phase::Running(live) | Phase::Stalled(live), State::Paused, _) => self.pause(live).await?,
            (Phase::Running(live), ..) => self.stall(live),
            (Phase::Stalled(live), ..) => {
                self.enter(Phase::Running(live), "disk_free");
                self.tell_authority();
            }
        }
        Ok(())
    }

    /// Lets calls under way end, because they fail with the machine. Long ones are cut off. Nothing ends while the machine
    /// stands still.
    async fn last_calls(&self) {
        if self.runs() {
            self.activity.calls_over(LAST_CALLS).await;
        }
    }

    fn stall(&self, live: Arc<Live>) {
        let is_writer = self.parts.disk.standing_still().borrow().contains(&self.info.id);
        let why = match is_writer {
            true => "it wrote more than is reserved for it while the host was short of disk space",
            false => "the host's disk is full",
        };
        self.record("disk_full", serde_json::json!({ "why": why }));
        self.phase.send_replace(Phase::Stalled(live));
    }

    pub(super) fn live(&self) -> Option<Arc<Live>> {
        self.phase.borrow().live().ok().cloned()
    }

    async fn pause(&mut self, live: Arc<Live>) -> Result<(), ChangeError> {
        live.link.hold(true);
        live.machine.stop().await.map_err(ChangeError::Machine)?;
        if let Err(error) = self.commit(SandboxInfo { state: State::Paused, ..self.info.clone() }) {
            self.go_on(&live).await?;
            return Err(error.into());
        }
        self.enter(Phase::Paused(live), "paused");
        Ok(())
    }

    /// Recorded first: an engine that takes over lets the machine run in any case, and pauses it if its row says so.
    async fn resume(&mut self, live: Arc<Live>) -> Result<(), ChangeError> {
        self.commit(SandboxInfo { state: State::Running, ..self.info.clone() })?;
        if let Err(error) = self.go_on(&live).await {
            self.note(SandboxInfo { state: State::Paused, ..self.info.clone() });
            return Err(error);
        }
        self.enter(Phase::Running(live), "resumed");
        self.tell_authority();
        Ok(())
    }

    pub(super) async fn go_on(&self, live: &Live) -> Result<(), ChangeError> {
        live.machine.cont().await.map_err(ChangeError::Machine)?;
        live.link.hold(false);
        Ok(())
    }

    /// Shows a phase that the row has already.
    pub(super) fn enter(&self, phase: Phase, event: &str) {
        self.record(event, serde_json::json!({}));
        self.phase.send_replace(phase);
    }

    pub(super) fn record(&self, kind: &str, detail: serde_json::Value) {
        self.parts.events.note(&self.info.id, &self.info.workspace, kind, detail);
    }

    /// Moves the machine's own deadline, which holds if this process dies.
    pub(super) fn set_deadline(&mut self, left: Option<Duration>) {
        let Some(live) = self.live() else { return };
        let deadline = left.map(|left| SystemTime::now() + left + BACKSTOP);
        let changed = match (self.deadline, deadline) {
            (Some(set), Some(deadline)) => deadline > set + REFRESH || deadline + REFRESH < set,
            (set, deadline) => set.is_some() != deadline.is_some(),
        };
        if !changed {
            return;
        }
        self.deadline = deadline;
        let unix_ms = deadline
            .and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok())
            .map(|since| since.as_millis() as u64);
        if let Err(error) = live.machine.set_deadline(unix_ms) {
            tracing::warn!(sandbox = %self.info.id, error = &error as &dyn std::error::Error, "could not set the machine's own deadline");
        }
    }
}
