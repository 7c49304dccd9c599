//! The sandboxes of one engine that live, also those that it has not taken over yet.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::model::SandboxId;
use crate::sandbox::Sandbox;

#[derive(Default)]
pub(crate) struct Registry {
    sandboxes: Mutex<Sandboxes>,
}

#[derive(Default)]
struct Sandboxes {
    living: HashMap<SandboxId, Arc<Sandbox>>,
    closing: bool,
}

impl Registry {
    pub(crate) fn get(&self, id: &SandboxId) -> Option<Arc<Sandbox>> {
        self.sandboxes().living.get(id).cloned()
    }

    pub(crate) fn living(&self) -> Vec<Arc<Sandbox>> {
        self.sandboxes().living.values().cloned().collect()
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.sandboxes().closing
    }

    /// Refuses new sandboxes from now on. Returns those that live.
    pub(crate) fn close(&self) -> Vec<Arc<Sandbox>> {
        let mut sandboxes = self.sandboxes();
        sandboxes.closing = true;
        sandboxes.living.values().cloned().collect()
    }

    /// Enters a sandbox. Returns false when the engine is closing.
    pub(crate) fn register(&self, sandbox: Arc<Sandbox>) -> bool {
        let mut sandboxes = self.sandboxes();
        if !sandboxes.closing {
            sandboxes.living.insert(sandbox.id().clone(), sandbox);
        }
        !sandboxes.closing
    }

    pub(crate) fn unregister(&self, id: &SandboxId) {
        self.sandboxes().living.remove(id);
    }

    fn sandboxes(&self) -> MutexGuard<'_, Sandboxes> {
        self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
