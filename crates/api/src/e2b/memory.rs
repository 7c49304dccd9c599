//! State between requests that may be lost when the server restarts: how a process was started, what a watcher saw, and
//! which builds have not started yet.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandling_engine::SandboxId;
use sandling_service::Build;

use super::envd::{Started, Watcher};
use super::names::Name;
use crate::app::App;

/// From this many entries on, those of ended sandboxes are removed.
const MANY: usize = 1024;

/// The options that a client sent for a build before its steps.
pub(super) struct BuildOptions {
    pub(super) workspace: String,
    /// One name for every tag.
    pub(super) names: Vec<Name>,
    pub(super) vcpus: Option<u32>,
    pub(super) memory_mib: Option<u32>,
}

/// The state of the server that received the request.
pub(super) fn memory(app: &App) -> Arc<Memory> {
    app.dialect_state()
}

#[derive(Default)]
pub(super) struct Memory {
    processes: Mutex<HashMap<(SandboxId, String), Arc<Started>>>,
    watchers: Mutex<HashMap<(SandboxId, String), Arc<Watcher>>>,
    /// The options of builds that have not started yet.
    options: Mutex<HashMap<String, BuildOptions>>,
}

impl Memory {
    /// Stores a build's options.
    pub(super) fn store_options(&self, app: &App, build: &Build, options: BuildOptions) {
        let mut all = lock(&self.options);
        if all.len() >= MANY {
            all.retain(|id, options| app.service.builds.registry.find(&options.workspace, id).is_some());
        }
        all.insert(build.id.clone(), options);
    }

    /// Takes a build's options. Only the first caller gets them.
    pub(super) fn take_options(&self, build: &Build) -> Option<BuildOptions> {
        lock(&self.options).remove(&build.id)
    }

    /// How a command was started.
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

    /// The number of a sandbox's watchers.
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
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
