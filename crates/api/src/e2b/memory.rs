//! What is remembered between requests, and may be forgotten with the server: how a process was started, what a
//! watcher saw, whose turn it is in a context, and which builds are yet to begin.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandling_engine::SandboxId;
use sandling_service::Build;

use super::envd::{Started, Watcher};
use super::names::Name;
use crate::app::App;

/// More than these are looked through for what belongs to sandboxes that have ended.
const MANY: usize = 1024;

/// The turns in one context.
type Lane = Arc<tokio::sync::Mutex<()>>;

/// What a client said about a build before it sent the steps.
pub(super) struct Asked {
    pub(super) workspace: String,
    /// Once for every tag.
    pub(super) names: Vec<Name>,
    pub(super) vcpus: Option<u32>,
    pub(super) memory_mib: Option<u32>,
}

/// The memory of the server that a request came to.
pub(super) fn memory(app: &App) -> Arc<Memory> {
    app.dialect_state()
}

#[derive(Default)]
pub(super) struct Memory {
    processes: Mutex<HashMap<(SandboxId, String), Arc<Started>>>,
    watchers: Mutex<HashMap<(SandboxId, String), Arc<Watcher>>>,
    lanes: Mutex<HashMap<(SandboxId, String), Lane>>,
    /// What a build was asked to become, until it begins.
    asked: Mutex<HashMap<String, Asked>>,
}

impl Memory {
    /// Keeps what a build is to become.
    pub(super) fn ask(&self, app: &App, build: &Build, asked: Asked) {
        let mut all = lock(&self.asked);
        if all.len() >= MANY {
            all.retain(|id, asked| app.service.builds.find(&asked.workspace, id).is_some());
        }
        all.insert(build.id.clone(), asked);
    }

    /// What a build is to become, for whoever begins it first.
    pub(super) fn asked(&self, build: &Build) -> Option<Asked> {
        lock(&self.asked).remove(&build.id)
    }

    /// How a command was started, by its id.
    pub(super) fn process(&self, sandbox: &SandboxId, exec: &str) -> Option<Arc<Started>> {
        lock(&self.processes).get(&(sandbox.clone(), exec.to_owned())).cloned()
    }

    pub(super) fn started(&self, app: &App, sandbox: &SandboxId, exec: &str, started: Started) {
        let mut processes = lock(&self.processes);
        if processes.len() >= MANY {
            processes.retain(|(sandbox, _), _| app.engine.get(sandbox).is_some());
        }
        processes.insert((sandbox.clone(), exec.to_owned()), Arc::new(started));
    }

    pub(super) fn ended(&self, sandbox: &SandboxId, exec: &str) {
        lock(&self.processes).remove(&(sandbox.clone(), exec.to_owned()));
    }

    pub(super) fn watcher(&self, sandbox: &SandboxId, id: &str) -> Option<Arc<Watcher>> {
        lock(&self.watchers).get(&(sandbox.clone(), id.to_owned())).cloned()
    }

    /// How many watchers a sandbox has.
    pub(super) fn watchers(&self, sandbox: &SandboxId) -> usize {
        lock(&self.watchers).keys().filter(|(owner, _)| owner == sandbox).count()
    }

    pub(super) fn watch(&self, app: &App, sandbox: &SandboxId, id: &str, watcher: Arc<Watcher>) {
        let mut watchers = lock(&self.watchers);
        watchers.retain(|(sandbox, _), _| app.engine.get(sandbox).is_some());
        watchers.insert((sandbox.clone(), id.to_owned()), watcher);
    }

    pub(super) fn unwatch(&self, sandbox: &SandboxId, id: &str) -> Option<Arc<Watcher>> {
        lock(&self.watchers).remove(&(sandbox.clone(), id.to_owned()))
    }

    /// Held by whoever runs code in a context: one at a time, in the order they came.
    pub(super) fn lane(&self, sandbox: &SandboxId, context: &str) -> Lane {
        let mut lanes = lock(&self.lanes);
        // A lane that nobody holds or waits for is known here alone.
        lanes.retain(|_, lane| Arc::strong_count(lane) > 1);
        lanes.entry((sandbox.clone(), context.to_owned())).or_default().clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
