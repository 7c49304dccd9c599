//! The sandboxes of one engine that live, also those that it has not taken over yet.

use std::collections::{HashMap, HashSet};
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
    /// Workspaces and names of sandboxes that are being made.
    claimed: HashSet<(String, String)>,
}

/// A name that nobody else gets. When this is dropped, the sandbox has it, or it is free again.
pub(crate) struct NameClaim {
    registry: Arc<Registry>,
    claimed: (String, String),
}

impl Drop for NameClaim {
    fn drop(&mut self) {
        self.registry.sandboxes().claimed.remove(&self.claimed);
    }
}

impl Registry {
    pub(crate) fn get(&self, id: &SandboxId) -> Option<Arc<Sandbox>> {
        self.sandboxes().living.get(id).cloned()
    }

    /// The living sandbox of a workspace that has this name.
    pub(crate) fn named(&self, workspace: &str, name: &str) -> Option<Arc<Sandbox>> {
        self.sandboxes().named(workspace, name)
    }

    /// Claims a name. If it is taken, the error says what has it.
    pub(crate) fn claim_name(self: &Arc<Self>, workspace: &str, name: &str) -> Result<NameClaim, String> {
        let mut sandboxes = self.sandboxes();
        if let Some(sandbox) = sandboxes.named(workspace, name) {
            return Err(format!("sandbox {}", sandbox.id()));
        }
        let claimed = (workspace.to_owned(), name.to_owned());
        if !sandboxes.claimed.insert(claimed.clone()) {
            return Err("a sandbox that is being created".to_owned());
        }
        Ok(NameClaim { registry: self.clone(), claimed })
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

impl Sandboxes {
    fn named(&self, workspace: &str, name: &str) -> Option<Arc<Sandbox>> {
        let has_it =
            |sandbox: &&Arc<Sandbox>| sandbox.info.workspace == workspace && sandbox.info.name.as_deref() == Some(name);
        self.living.values().find(has_it).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_claimed_once_in_each_workspace() {
        let registry = Arc::new(Registry::default());
        let claim = registry.claim_name("one", "web").unwrap();
        assert!(registry.claim_name("one", "web").err().unwrap().contains("being created"));
        assert!(registry.claim_name("one", "db").is_ok());
        assert!(registry.claim_name("two", "web").is_ok());
        drop(claim);
        assert!(registry.claim_name("one", "web").is_ok());
    }
}
