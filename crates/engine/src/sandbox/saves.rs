//! One save at a time for each sandbox.

use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::snapshot::WaitingSaves;

/// A sandbox's save that is under way.
#[derive(Default, Clone)]
pub(crate) struct Saves {
    one: Arc<Mutex<()>>,
    /// Those that wait for it.
    pub(crate) waiting: WaitingSaves,
}

impl Saves {
    /// Waits until no save is under way. None begins while the guard is held.
    pub(crate) async fn quiet(&self) -> OwnedMutexGuard<()> {
        self.one.clone().lock_owned().await
    }

    /// The same for the next save. The one under way gives up what nobody waits for.
    pub(crate) async fn begin(&self) -> OwnedMutexGuard<()> {
        let _waits = self.waiting.one_more();
        self.quiet().await
    }

    /// The same without waiting, for the sandbox's own task: a save that is under way waits for the task.
    pub(crate) fn quiet_now(&self) -> Option<OwnedMutexGuard<()>> {
        self.one.clone().try_lock_owned().ok()
    }
}
