//! Long calls of a client that gives up after 30 s of silence.
//!
//! The public Python client passes one number to its HTTP library, which is then the longest silence it bears. Its
//! library skips repeated `100 Continue` answers, so one is sent now and then while a request is being worked on.
//! Other clients fail on them and get none.

use std::pin::pin;
use std::time::Duration;

use axum::http::{HeaderMap, header};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::connection::Pulse;

const NEEDS_IT: &str = "pandastack-py/";

/// Whether the client that sent these headers needs a sign of life, and can bear it.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok());
    agent.is_some_and(|agent| agent.starts_with(NEEDS_IT))
}

/// Signs of life on one connection.
#[derive(Clone)]
pub(super) struct Heartbeat {
    pulse: Pulse,
    every: Duration,
}

impl Heartbeat {
    pub(super) fn new(pulse: Pulse, every: Duration) -> Self {
        Self { pulse, every }
    }

    /// Does the work, with a beat of the pulse now and then.
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
