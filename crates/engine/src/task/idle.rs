//! What happens when time has passed: the sandbox hibernates or ends.

use std::time::{Duration, Instant};

use super::start::SandboxTask;
use crate::lifecycle::Request;
use crate::model::{EndReason, Kept, State};

/// The pause after a sandbox could not hibernate or end.
const RETRY: Duration = Duration::from_secs(60);
/// The pause while another save is under way.
const RETRY_AFTER_SAVE: Duration = Duration::from_millis(200);
/// No save takes longer.
const LONGEST_SAVE: Duration = Duration::from_secs(600);

impl SandboxTask {
    /// What the passing of time asks for next, and in how long. A time to live may stand still while the sandbox
    /// hibernates.
    pub(super) fn next_due(&mut self) -> Option<(Duration, Request)> {
        let (lifetime, idle, state) = (*self.lifetime.borrow(), self.idle_for(), self.phase.borrow().state());
        let retry = self.retry_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
        let asleep = state == State::Hibernated;
        let stands_still = state == State::Orphaned || asleep && lifetime.sleep.is_free;
        let over = lifetime.left(idle).filter(|_| !stands_still).map(|(left, reason)| {
            let hibernates = !asleep && lifetime.sleep.at_the_end && reason == EndReason::Ttl;
            // Only a guest that runs can write out what it has not written to its disk.
            let keeps = if state == State::Running { lifetime.sleep.keeps } else { Kept::Everything };
            (left.max(retry), if hibernates { Request::Hibernate(keeps) } else { Request::End(reason) })
        });
        self.set_deadline(over.as_ref().map(|(left, _)| *left));
        let idles = self.hibernate_after.filter(|_| lifetime.persistent && self.live().is_some());
        over.or(idles.map(|after| (after.saturating_sub(idle).max(retry), Request::Hibernate(Kept::Everything))))
    }

    /// How long the sandbox has been idle. Use by others of its group counts.
    fn idle_for(&self) -> Duration {
        if let Some(served) = self.network.served() {
            self.activity.used_at(served);
        }
        self.activity.idle_for()
    }

    /// Carries out a request that nobody waits for. If that fails, time asks for it again later.
    pub(super) async fn change_or_retry(&mut self, request: Request) {
        // Copies that are being written would end with the machine.
        let nothing_pending = self.saves.quiet_now();
        if matches!(request, Request::Hibernate(_)) {
            if nothing_pending.is_none() {
                self.retry_at = Some(Instant::now() + RETRY_AFTER_SAVE);
                return;
            }
            if self.deadline.is_some() {
                // The machine's own deadline must not pass in the middle of the save.
                self.set_deadline(Some(LONGEST_SAVE));
            }
        }
        if let Err(error) = self.change(request).await {
            self.retry_at = Some(Instant::now() + RETRY);
            tracing::warn!(sandbox = %self.info.id, error = &error as &dyn std::error::Error, "could not hibernate or end a sandbox when it was time; retrying in a minute");
        }
    }
}
