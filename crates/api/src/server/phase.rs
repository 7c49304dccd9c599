//! What a connection is doing.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::OwnedSemaphorePermit;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Accepted. The server has not yet read all that the client had sent by then.
    New { since: Instant },
    /// The client must send the head of a request: after it connected, or after the first byte of the next request.
    Head { since: Instant },
    /// Requests are being handled, or the connection has become a socket.
    Busy { requests: usize },
    /// Kept alive between requests.
    Idle { since: Instant },
}

/// The phase of one connection.
#[derive(Debug)]
pub(super) struct PhaseCell(Mutex<State>);

#[derive(Debug)]
struct State {
    phase: Phase,
    /// With HTTP/2, bytes between requests are not a request's head: clients send pings.
    is_multiplexed: bool,
    /// The permit to be new.
    permit: Option<OwnedSemaphorePermit>,
}

impl PhaseCell {
    /// A connection that was just accepted. It releases the permit when it is no longer new.
    pub(super) fn new(now: Instant, permit: OwnedSemaphorePermit) -> Self {
        Self(Mutex::new(State { phase: Phase::New { since: now }, is_multiplexed: false, permit: Some(permit) }))
    }

    pub(super) fn get(&self) -> Phase {
        self.lock().phase
    }

    /// Bytes of the client have arrived.
    pub(super) fn hear(&self) {
        let mut state = self.lock();
        if matches!(state.phase, Phase::Idle { .. }) && !state.is_multiplexed {
            state.phase = Phase::Head { since: Instant::now() };
        }
    }

    /// The server has read all that the client has sent.
    pub(super) fn wait(&self) {
        let mut state = self.lock();
        if let Phase::New { since } = state.phase {
            state.phase = Phase::Head { since };
            state.permit = None;
        }
    }

    /// A request's head is complete.
    pub(super) fn begin(&self, is_multiplexed: bool) {
        let mut state = self.lock();
        state.permit = None;
        state.is_multiplexed |= is_multiplexed;
        state.phase = match state.phase {
            Phase::Busy { requests } => Phase::Busy { requests: requests + 1 },
            Phase::New { .. } | Phase::Head { .. } | Phase::Idle { .. } => Phase::Busy { requests: 1 },
        };
    }

    /// A request's response is complete.
    pub(super) fn end(&self, now: Instant) {
        let mut state = self.lock();
        state.phase = match state.phase {
            Phase::Busy { requests } if requests > 1 => Phase::Busy { requests: requests - 1 },
            _ => Phase::Idle { since: now },
        };
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Semaphore;

    use super::*;

    fn new() -> (PhaseCell, Arc<Semaphore>) {
        let permits = Arc::new(Semaphore::new(1));
        (PhaseCell::new(Instant::now(), permits.clone().try_acquire_owned().unwrap()), permits)
    }

    #[test]
    fn a_connection_is_new_until_the_server_has_read_all_that_was_sent() {
        let (cell, permits) = new();
        cell.hear();
        assert!(matches!(cell.get(), Phase::New { .. }));
        assert_eq!(permits.available_permits(), 0);
        cell.wait();
        assert!(matches!(cell.get(), Phase::Head { .. }));
        assert_eq!(permits.available_permits(), 1);
        for end in [|cell: PhaseCell| cell.begin(false), |cell| drop(cell)] {
            let (cell, permits) = new();
            end(cell);
            assert_eq!(permits.available_permits(), 1);
        }
    }

    #[test]
    fn the_first_byte_of_the_next_request_starts_its_deadline() {
        let (cell, _) = new();
        cell.wait();
        cell.begin(false);
        cell.hear();
        assert_eq!(cell.get(), Phase::Busy { requests: 1 });
        cell.end(Instant::now());
        assert!(matches!(cell.get(), Phase::Idle { .. }));
        cell.hear();
        assert!(matches!(cell.get(), Phase::Head { .. }));
    }

    #[test]
    fn pings_of_http2_do_not_look_like_a_slow_request() {
        let (cell, _) = new();
        cell.begin(true);
        cell.begin(true);
        cell.end(Instant::now());
        assert_eq!(cell.get(), Phase::Busy { requests: 1 });
        cell.end(Instant::now());
        cell.hear();
        assert!(matches!(cell.get(), Phase::Idle { .. }));
    }
}
