//! Requests about a sandbox wait while it moves.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandling_engine::SandboxId;
use tokio::sync::watch;

/// Clones are the same.
#[derive(Clone, Default)]
pub(in crate::fleet) struct Gate(Arc<Mutex<HashMap<SandboxId, Passage>>>);

#[derive(Default)]
struct Passage {
    /// Requests that have passed and are not answered yet.
    inside: usize,
    /// Present while the passage is closed. Its end tells those who wait.
    closed: Option<watch::Sender<()>>,
}

/// A request that has passed. Until this is dropped, the sandbox does not begin to move.
pub(in crate::fleet) struct Entered {
    gate: Gate,
    id: SandboxId,
}

/// While this exists, requests about the sandbox wait.
pub(in crate::fleet) struct Closed {
    gate: Gate,
    id: SandboxId,
}

/// Whether requests that are inside keep a passage open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::fleet) enum Insiders {
    KeepItOpen,
    AreIgnored,
}

/// The passage is closed.
pub(in crate::fleet) struct Moving(watch::Receiver<()>);

impl Moving {
    pub(in crate::fleet) async fn over(mut self) {
        // Nothing is ever sent.
        let _ = self.0.changed().await;
    }
}

impl Gate {
    pub(in crate::fleet) fn enter(&self, id: &SandboxId) -> Result<Entered, Moving> {
        let mut all = self.lock();
        let passage = all.entry(id.clone()).or_default();
        if let Some(closed) = &passage.closed {
            return Err(Moving(closed.subscribe()));
        }
        passage.inside += 1;
        Ok(Entered { gate: self.clone(), id: id.clone() })
    }

    /// `None` if it is closed already, or requests keep it open.
    pub(in crate::fleet) fn close(&self, id: &SandboxId, insiders: Insiders) -> Option<Closed> {
        let mut all = self.lock();
        let passage = all.entry(id.clone()).or_default();
        let stays_open = passage.inside > 0 && insiders == Insiders::KeepItOpen;
        if passage.closed.is_some() || stays_open {
            return None;
        }
        passage.closed = Some(watch::Sender::new(()));
        Some(Closed { gate: self.clone(), id: id.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SandboxId, Passage>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, id: &SandboxId, change: impl FnOnce(&mut Passage)) {
        let mut all = self.lock();
        if let Some(passage) = all.get_mut(id) {
            change(passage);
            if passage.inside == 0 && passage.closed.is_none() {
                all.remove(id);
            }
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.gate.change(&self.id, |passage| passage.inside -= 1);
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        self.gate.change(&self.id, |passage| passage.closed = None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> SandboxId {
        SandboxId::parse("0e0b5a3c-7a0b-4e57-9f52-0f7d6f1f3a11").unwrap()
    }

    #[tokio::test]
    async fn requests_wait_for_the_end_of_a_move_and_a_move_waits_for_requests() {
        let gate = Gate::default();
        let Ok(entered) = gate.enter(&id()) else { panic!("it is open") };
        assert!(gate.close(&id(), Insiders::KeepItOpen).is_none());
        drop(entered);
        let closed = gate.close(&id(), Insiders::KeepItOpen).unwrap();
        assert!(gate.close(&id(), Insiders::AreIgnored).is_none(), "one move at a time");
        let Err(moving) = gate.enter(&id()) else { panic!("it is closed") };
        let waiting = tokio::spawn(moving.over());
        drop(closed);
        waiting.await.unwrap();
        assert!(gate.enter(&id()).is_ok());
        assert!(gate.lock().is_empty(), "nothing is left");
    }

    #[test]
    fn a_move_that_cannot_wait_closes_the_gate_behind_requests() {
        let gate = Gate::default();
        let Ok(entered) = gate.enter(&id()) else { panic!("it is open") };
        let closed = gate.close(&id(), Insiders::AreIgnored).unwrap();
        drop(entered);
        assert!(gate.enter(&id()).is_err());
        drop(closed);
        assert!(gate.lock().is_empty());
    }
}
