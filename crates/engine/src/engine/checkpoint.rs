//! Checkpoints: a snapshot before everything that changes a sandbox.
//!
//! What is about to run waits only until the machine has been copied. The copy is written in the background.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::instance::Engine;
use crate::model::{Cause, Checkpoint, Mark, SnapshotSpec, Timeline, Visibility};
use crate::sandbox::{CheckpointError, Command, Sandbox};
use crate::snapshot::SnapshotError;

impl Engine {
    /// Makes a checkpoint before something is done, if the sandbox makes checkpoints. Returns as soon as the machine is
    /// copied; the checkpoint is written in the background.
    pub async fn before(&self, sandbox: &Arc<Sandbox>, cause: Cause, text: &str) -> Result<(), CheckpointError> {
        if !sandbox.timeline.borrow().wants(cause) {
            return Ok(());
        }
        // A use that would be refused anyway makes no checkpoint.
        drop(sandbox.live()?);
        let frozen = sandbox
            .freeze(&self.parts.snapshots, SnapshotSpec::default(), Visibility::Hidden, Some(Mark::new(cause, text)))
            .await?;
        let (events, sandbox) = (self.parts.events.clone(), sandbox.clone());
        tokio::spawn(async move {
            if let Err(error) = frozen.written(None).await {
                tracing::warn!(sandbox = %sandbox.id(), error = &error as &dyn std::error::Error, "could not write a checkpoint");
                let detail = serde_json::json!({ "why": error.to_string() });
                // On a full disk this fails, too; then the log has it.
                let _ = events.record(sandbox.id(), &sandbox.info.workspace, "checkpoint_lost", detail);
            }
        });
        Ok(())
    }

    /// Makes a checkpoint on request.
    pub async fn checkpoint(
        &self,
        sandbox: &Arc<Sandbox>,
        name: Option<String>,
    ) -> Result<Checkpoint, CheckpointError> {
        sandbox.timeline.borrow().check_name(name.as_deref(), None)?;
        let mark = Mark { name, ..Mark::new(Cause::Request, "") };
        self.mark(sandbox, mark, None).await
    }

    pub(super) async fn mark(
        &self,
        sandbox: &Arc<Sandbox>,
        mark: Mark,
        spared: Option<u64>,
    ) -> Result<Checkpoint, CheckpointError> {
        let frozen =
            sandbox.freeze(&self.parts.snapshots, SnapshotSpec::default(), Visibility::Hidden, Some(mark)).await?;
        let number = frozen.checkpoint.as_ref().map(|checkpoint| checkpoint.number).unwrap_or_default();
        // In a task of its own, like every save.
        let written = tokio::spawn(frozen.written(spared));
        written.await.unwrap_or(Err(SnapshotError::CutOff))?;
        Ok(sandbox.timeline.borrow().find(&number.to_string())?.clone())
    }

    /// The checkpoints of a sandbox. Waits for those that are being written.
    pub async fn timeline(&self, sandbox: &Sandbox) -> Timeline {
        let _nothing_pending = sandbox.saves.quiet().await;
        sandbox.timeline.borrow().clone()
    }

    /// Names a checkpoint, which keeps it, or removes its name.
    pub async fn name_checkpoint(
        &self,
        sandbox: &Sandbox,
        which: &str,
        name: Option<String>,
    ) -> Result<Checkpoint, CheckpointError> {
        let _nothing_pending = sandbox.saves.quiet().await;
        let (answer, answered) = oneshot::channel();
        sandbox.ask_task(Command::NameCheckpoint { which: which.to_owned(), name, answer }).await?;
        answered.await.map_err(|_| SnapshotError::CutOff)?
    }
}
