//! What happens when time has passed: the sandbox hibernates or ends.

use std::time::{Duration, Instant};

use super::start::SandboxTask;
use crate::model::EndReason;

/// The pause after a sandbox could not hibernate.
const RETRY_HIBERNATION: Duration = Duration::from_secs(60);
/// The pause while another save is under way.
const RETRY_AFTER_SAVE: Duration = Duration::from_millis(200);
/// No save takes longer.
const LONGEST_SAVE: Duration = Duration::from_secs(600);

impl SandboxTask {
    /// How long until a persistent sandbox hibernates, or `None` if it does not by itself.
    pub(super) fn hibernates_in(&self) -> Option<Duration> {
        let after = self.hibernate_after?;
        let may = self.lifetime.borrow().persistent && self.live.is_some();
        may.then(|| after.saturating_sub(self.idle_for()).max(self.stays_awake()))
    }

    /// How long the sandbox has been idle. Use by others of its group counts.
    fn idle_for(&self) -> Duration {
        if let Some(served) = self.network.served() {
            self.activity.used_at(served);
        }
        self.activity.idle_for()
    }

    /// How long until it may try again to hibernate.
    fn stays_awake(&self) -> Duration {
        self.awake_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    pub(super) async fn hibernate_if_quiet(&mut self) {
        let Some(live) = self.live.clone() else { return };
        // Copies that are being written would end with the machine.
        let Some(_nothing_pending) = self.saves.quiet_now() else {
            self.awake_until = Some(Instant::now() + RETRY_AFTER_SAVE);
            return;
        };
        if let Err(error) = self.hibernate(&live).await {
            self.awake_until = Some(Instant::now() + RETRY_HIBERNATION);
            tracing::warn!(sandbox = %self.info.id, error = &error as &dyn std::error::Error, "could not hibernate an idle sandbox; retrying in a minute");
        }
    }

    /// How long until the sandbox's time is over, and why. A time to live may stand still while it hibernates.
    pub(super) fn time_left(&self) -> Option<(Duration, EndReason)> {
        let lifetime = *self.lifetime.borrow();
        if self.live.is_none() && lifetime.sleep.is_free {
            return None;
        }
        let (left, reason) = lifetime.left(self.idle_for())?;
        // Ending it now would lose its work; it tries to hibernate again a little later.
        let left = if lifetime.sleep.at_the_end { left.max(self.stays_awake()) } else { left };
        Some((left, reason))
    }

    pub(super) fn hibernates_at_the_end(&self) -> bool {
        self.lifetime.borrow().sleep.at_the_end && self.live.is_some()
    }

    pub(super) async fn hibernate_instead_of_ending(&mut self) {
        // The machine's own deadline must not pass in the middle of the save.
        self.set_deadline(Some(LONGEST_SAVE));
        self.hibernate_if_quiet().await;
    }
}
