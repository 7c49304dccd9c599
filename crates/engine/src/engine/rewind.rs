//! Going back to a checkpoint.
//!
//! Where the sandbox was becomes a checkpoint, too, so that a rewind can be undone. Then the sandbox is woken from the
//! other moment. Its row names that moment before its machine ends, so the next engine finds one or the other.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::instance::Engine;
use crate::model::{Cause, Checkpoint, Mark};
use crate::sandbox::{CheckpointError, Command, Sandbox};
use crate::snapshot::SnapshotError;

impl Engine {
    /// Puts a sandbox back to a checkpoint, by number or name. It keeps its id. What runs in it ends, and what ran at the
    /// checkpoint continues. Returns the checkpoint of where it was.
    pub async fn rewind(self: &Arc<Self>, sandbox: &Arc<Sandbox>, to: &str) -> Result<Rewound, CheckpointError> {
        let (engine, sandbox, to) = (self.clone(), sandbox.clone(), to.to_owned());
        // In a task of its own: a caller that goes away must not leave the sandbox half way.
        let rewinding = tokio::spawn(async move { engine.rewind_inner(&sandbox, &to).await });
        rewinding.await.unwrap_or(Err(SnapshotError::CutOff.into()))
    }

    async fn rewind_inner(&self, sandbox: &Arc<Sandbox>, to: &str) -> Result<Rewound, CheckpointError> {
        let _in_use = sandbox.activity.begin();
        let to = self.timeline(sandbox).await.find(to)?.clone();
        if sandbox.info().sleeps_without_memory() {
            // Only a machine can be made a checkpoint of.
            sandbox.wake().await?;
        }
        let _held = self.parts.snapshots.hold(&to.snapshot);
        if !sandbox.hibernates() {
            let mark = Mark::new(Cause::Rewind, &format!("rewind to {}", to.number));
            self.mark(sandbox, mark, Some(to.number)).await?;
        }
        let _nothing_pending = sandbox.saves.quiet().await;
        let (answer, answered) = oneshot::channel();
        sandbox.ask_task(Command::Rewind { to: to.clone(), answer }).await?;
        let was = answered.await.map_err(|_| SnapshotError::CutOff)??;
        sandbox.guest_told().await;
        self.parts.snapshots.sweep_behind(Vec::new());
        Ok(Rewound { to, was })
    }
}

/// What a rewind did.
#[derive(Debug, Clone)]
pub struct Rewound {
    pub to: Checkpoint,
    /// Where the sandbox was, to take the rewind back.
    pub was: Option<u64>,
}
