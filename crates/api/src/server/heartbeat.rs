//! Interim responses during a long call, for a client that gives up after some seconds of silence.
//!
//! Python's HTTP library skips repeated `100 Continue` responses, and each one restarts its read timer. Other libraries
//! fail on them, so only the clients that the router names get them.

use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::pulsed::Pulse;

/// Sends interim responses on one connection.
#[derive(Clone)]
pub(super) struct Heartbeat {
    pulse: Pulse,
    every: Duration,
}

impl Heartbeat {
    pub(super) fn new(pulse: Pulse, every: Duration) -> Self {
        Self { pulse, every }
    }

    /// Runs `work`, and sends interim responses at intervals until it is done.
    pub(super) async fn beside<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let mut ticks = interval_at(Instant::now() + self.every, self.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                _ = ticks.tick() => self.pulse.beat(),
            }
        }
    }
}
