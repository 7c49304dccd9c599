//! Events: what happened to sandboxes, written to the store and passed on to those who listen.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tokio::sync::broadcast;

use crate::model::SandboxId;
use crate::store::{Event, Store, StoreError};

/// Events that a slow listener may fall behind by before it misses some.
const WAITING: usize = 1024;

pub struct Events {
    store: Arc<Store>,
    live: broadcast::Sender<Event>,
    /// Held while an event gets its number and is passed on, so that listeners get events in the order of their numbers.
    order: Mutex<()>,
}

impl Events {
    pub(crate) fn new(store: Arc<Store>) -> Self {
        Self { store, live: broadcast::Sender::new(WAITING), order: Mutex::default() }
    }

    /// Writes an event of a sandbox to the store, then tells the listeners.
    pub fn record(&self, sandbox: &SandboxId, workspace: &str, kind: &str, detail: Value) -> Result<(), StoreError> {
        let _in_order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        let event = self.store.add_event(sandbox.as_str(), workspace, kind, detail)?;
        // There may be no listener.
        let _ = self.live.send(event);
        Ok(())
    }

    /// Records an event where nothing depends on it: a failure goes to the log.
    pub(crate) fn note(&self, sandbox: &SandboxId, workspace: &str, kind: &str, detail: Value) {
        if let Err(error) = self.record(sandbox, workspace, kind, detail) {
            tracing::warn!(%sandbox, kind, error = &error as &dyn std::error::Error, "could not record an event");
        }
    }

    /// The newest events of a workspace or of one of its sandboxes, ended ones included; oldest first.
    pub fn newest(&self, workspace: &str, sandbox: Option<&SandboxId>, limit: u32) -> Result<Vec<Event>, StoreError> {
        self.store.events(workspace, sandbox.map(SandboxId::as_str), None, limit)
    }

    /// The events that follow the one with this number, oldest first.
    pub fn after(
        &self,
        workspace: &str,
        sandbox: Option<&SandboxId>,
        after: i64,
        limit: u32,
    ) -> Result<Vec<Event>, StoreError> {
        self.store.events(workspace, sandbox.map(SandboxId::as_str), Some(after), limit)
    }

    /// Events of all workspaces from now on; the listener picks those that it may see.
    pub fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.live.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_get_events_in_the_order_of_their_numbers() {
        let dir = tempfile::tempdir().unwrap();
        let events = Events::new(Arc::new(Store::open(&dir.path().join("db")).unwrap()));
        let mut listener = events.subscribe();
        let id = SandboxId::fresh();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..50).for_each(|_| events.record(&id, "default", "created", Value::Null).unwrap()));
            }
        });
        let numbers: Vec<_> = std::iter::from_fn(|| listener.try_recv().ok()).map(|event| event.number).collect();
        assert_eq!(numbers.len(), 400);
        assert!(numbers.is_sorted(), "{numbers:?}");
    }
}
