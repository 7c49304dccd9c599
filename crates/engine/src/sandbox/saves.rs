//! One save at a time for each sandbox.

use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

/// A sandbox's save that is under way.
#[derive(Default, Clone)]
pub(crate) struct Saves(Arc<Mutex<()>>);

impl Saves {
    /// Waits until no save is under way. None begins while the guard is held.
    pub(crate) async fn quiet(&self) -> OwnedMutexGuard<()> {
        self.0.clone().lock_owned().await
    }

    /// The same without waiting, for the sandbox's own task: a save that is under way waits for the task.
    pub(crate) fn quiet_now(&self) -> Option<OwnedMutexGuard<()>> {
        self.0.clone().try_lock_owned().ok()
    }
}
