//! Sandboxes of dead engines whose rows cannot be read.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::model::{SandboxId, SandboxInfo};

/// Those of dead engines, as they were when this engine started.
#[derive(Default)]
pub(super) struct SetAside(Mutex<BTreeMap<SandboxId, SandboxInfo>>);

impl SetAside {
    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<SandboxId, SandboxInfo>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
