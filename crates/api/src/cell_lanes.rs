//! The queue of each context: an interpreter runs one cell at a time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use sandling_engine::SandboxId;

/// Serializes the runs in one context.
pub(crate) type Lane = Arc<tokio::sync::Mutex<()>>;

#[derive(Default)]
pub(crate) struct CellLanes(Mutex<HashMap<(SandboxId, String), Lane>>);

impl CellLanes {
    /// A run holds this lock while it uses the context, so that runs happen one at a time and in order.
    pub(crate) fn lane(&self, sandbox: &SandboxId, context: &str) -> Lane {
        let mut lanes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A lane that is not in use has no other reference.
        lanes.retain(|_, lane| Arc::strong_count(lane) > 1);
        lanes.entry((sandbox.clone(), context.to_owned())).or_default().clone()
    }
}
