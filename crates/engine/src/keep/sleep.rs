//! Falling asleep, by itself or when it is asked to, waking, and waking somewhere else.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Keeper, noting};
use crate::create::CreateError;
use crate::lifecycle::{self, Request, State};
use crate::sandbox::{ChangeError, EndReason, Live, Phase, SandboxInfo};
use crate::snapshot::SnapshotError;
use crate::timeline::{Cause, Checkpoint, Mark};
use crate::{hibernate, made, stall};

/// After a sandbox could not hibernate, the next try waits so long.
const RETRY_SLEEP: Duration = Duration::from_secs(60);
/// While it is being saved for another reason, so long.
const SAVES_END: Duration = Duration::from_millis(200);
/// No save takes longer.
const LONGEST_SAVE: Duration = Duration::from_secs(600);

impl Keeper {
    pub(super) async fn hibernate(&mut self, live: &Arc<Live>) -> Result<(), ChangeError> {
        let engine = self.engine.upgrade().ok_or(SnapshotError::CutOff)?;
        let paused = self.phase.borrow().state() == State::Paused;
        if !paused {
            self.write_out(live).await;
        }
        let id = self.intend(&engine)?;
        live.link.hold(true);
        let connections = self.network.flows();
        let frozen = hibernate::freeze(&engine, live, &self.info, id).await;
        let saved = match frozen {
            Ok(mut saving) => {
                saving.had(connections, Vec::new());
                // As in a snapshot: the disk has moved on, whatever becomes of the rest.
                self.is_so(SandboxInfo { standing: saving.standing.clone(), ..self.info.clone() });
                saving.write().await
            }
            Err(error) => Err(error),
        };
        // Written down before the machine ends: whoever comes next finds one or the other.
        let slept = saved.map_err(ChangeError::from).and_then(|(snapshot, _)| {
            let standing = snapshot.standing();
            Ok(self.become_so(SandboxInfo { state: State::Hibernated, standing, ..self.info.clone() })?)
        });
        if let Err(error) = slept {
            // It goes on as it was; if not even that, its task notices.
            if !paused {
                let _ = self.go_on(live).await;
            }
            return Err(error);
        }
        self.live = None;
        self.told = None;
        self.is_now(Phase::Hibernated, "hibernated");
        self.unplug();
        made::end_and_remove(&live.machine, &self.dir).await;
        Ok(())
    }

    /// Its row says that it runs before anybody can use it, and before it can reach anything: what it does from here on
    /// must not be done again from where it slept.
    pub(super) async fn wake(&mut self) -> Result<(), ChangeError> {
        let engine = self.engine.upgrade().ok_or(SnapshotError::CutOff)?;
        let live = Arc::new(hibernate::wake(&engine, &self.info).await?);
        let mut info = SandboxInfo { state: State::Running, ..self.info.clone() };
        if info.lifetime.sleep.is_free {
            info.lifetime.from = jiff::Timestamp::now();
        }
        if let Err(error) = self.become_so(info) {
            made::end_and_remove(&live.machine, &self.dir).await;
            return Err(error.into());
        }
        self.live = Some(live.clone());
        // Whoever had it woken is about to use it.
        drop(self.activity.begin());
        self.plug_in().await;
        stall::watch(&live, self.phase.subscribe(), self.stalled.clone(), noting(&engine, &self.info));
        self.is_now(Phase::Running(live), "woken");
        self.catch_up();
        if let Some(sandbox) = engine.get(&self.info.id) {
            engine.fold_behind(&sandbox);
        }
        Ok(())
    }

    /// Falls asleep where a checkpoint was made, and wakes there. Where it was is a checkpoint already, unless it
    /// slept. One that cannot be woken is left asleep, to be woken later.
    pub(super) async fn rewind(&mut self, to: &Checkpoint) -> Result<Option<u64>, ChangeError> {
        lifecycle::decide(self.phase.borrow().state(), Request::Hibernate)?;
        let engine = self.engine.upgrade().ok_or(SnapshotError::CutOff)?;
        let found = engine.store.snapshot(&to.snapshot).map_err(SnapshotError::from)?;
        let (snapshot, _) = found.ok_or(SnapshotError::Unknown)?;
        // While there is still a machine to lose.
        snapshot.source(&engine).await.map_err(CreateError::from)?;
        let mut info = SandboxInfo { state: State::Hibernated, standing: snapshot.standing(), ..self.info.clone() };
        let slept = self.info.standing.restored.clone().filter(|_| self.live.is_none());
        if let Some(slept) = slept.filter(|slept| !info.timeline.snapshots().any(|known| known == slept)) {
            let mark = Mark::new(Cause::Rewind, &format!("rewind to {}", to.number));
            let checkpoint = info.timeline.begin(mark, slept);
            info.timeline.add(checkpoint, Some(to.number));
        }
        let was = info.timeline.current;
        info.timeline.went_to(to.number);
        self.become_so(info)?;
        self.record("rewound", serde_json::json!({ "to": to.number, "was": was }));
        self.told = None;
        self.phase.send_replace(Phase::Hibernated);
        if let Some(live) = self.live.take() {
            live.link.hold(true);
            self.unplug();
            made::end_and_remove(&live.machine, &self.dir).await;
        }
        self.wake().await?;
        Ok(was)
    }

    /// How long until a persistent sandbox hibernates; nothing if it never does by itself.
    pub(super) fn sleepy(&self) -> Option<Duration> {
        let after = self.engine.upgrade()?.config.hibernate_after?;
        let may = self.lifetime.borrow().persistent && self.live.is_some();
        may.then(|| after.saturating_sub(self.idle_for()).max(self.stays_awake()))
    }

    /// How long nobody has used it, the others of its group included.
    fn idle_for(&self) -> Duration {
        if let Some(served) = self.network.served() {
            self.activity.used_at(served);
        }
        self.activity.idle_for()
    }

    /// How long until it may try again to sleep.
    fn stays_awake(&self) -> Duration {
        self.awake_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    pub(super) async fn fall_asleep(&mut self) {
        let Some(live) = self.live.clone() else { return };
        // The copies that are being written end with the machine.
        let Some(_nothing_pending) = self.saves.quiet_now() else {
            self.awake_until = Some(Instant::now() + SAVES_END);
            return;
        };
        if let Err(error) = self.hibernate(&live).await {
            self.awake_until = Some(Instant::now() + RETRY_SLEEP);
            tracing::warn!(sandbox = %self.info.id, error = &error as &dyn std::error::Error, "a sandbox could not hibernate");
        }
    }

    /// How long is left of its time, which need not pass while it hibernates.
    pub(super) fn time_left(&self) -> Option<(Duration, EndReason)> {
        let lifetime = *self.lifetime.borrow();
        if self.live.is_none() && lifetime.sleep.is_free {
            return None;
        }
        let (left, reason) = lifetime.left(self.idle_for())?;
        // Its work would be lost if it ended now; it tries to sleep again a little later.
        let left = if lifetime.sleep.at_the_end { left.max(self.stays_awake()) } else { left };
        Some((left, reason))
    }

    pub(super) fn sleeps_at_the_end(&self) -> bool {
        self.lifetime.borrow().sleep.at_the_end && self.live.is_some()
    }

    pub(super) async fn sleep_instead_of_ending(&mut self) {
        // The machine's own deadline must not come in the middle of the save.
        self.tell_machine(Some(LONGEST_SAVE));
        self.fall_asleep().await;
    }
}
