//! Checkpoints: a snapshot before whatever changes a sandbox, and the way back to one.
//!
//! What is about to run waits only until the machine has been copied; the copy is written behind it. A rewind keeps
//! where the sandbox was as a checkpoint, too, so that it can be taken back. Then it is a wake of another moment: the
//! row names what the sandbox is to be restored from before its machine ends, so whoever comes next finds the one or
//! the other.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::create::CreateError;
use crate::engine::Engine;
use crate::sandbox::{ChangeError, Command, Sandbox, UseError};
use crate::snapshot::SnapshotError;
use crate::store::Listed;
use crate::timeline::{Cause, Checkpoint, Mark, Timeline, TimelineError};

#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error(transparent)]
    Timeline(#[from] TimelineError),
    #[error(transparent)]
    Use(#[from] UseError),
    #[error("the checkpoint could not be made")]
    Save(#[from] SnapshotError),
    #[error("the checkpoint cannot be restored")]
    Restore(#[from] CreateError),
    #[error("the sandbox could not be changed")]
    Change(#[from] ChangeError),
}

impl Engine {
    /// Makes a checkpoint before something is done, if this sandbox is to have one. Returns as soon as it may be done:
    /// the checkpoint is of this moment, and is written behind it.
    pub async fn before(
        self: &Arc<Self>,
        sandbox: &Arc<Sandbox>,
        cause: Cause,
        text: &str,
    ) -> Result<(), CheckpointError> {
        if !sandbox.timeline.borrow().wants(cause) {
            return Ok(());
        }
        // What would be refused anyway leaves no trace.
        drop(sandbox.live()?);
        let frozen = self.freeze(sandbox, None, Listed::No, Some(Mark::new(cause, text)), None).await?;
        let (engine, sandbox) = (self.clone(), sandbox.clone());
        tokio::spawn(async move {
            if let Err(error) = frozen.written(None).await {
                tracing::warn!(sandbox = %sandbox.id(), error = &error as &dyn std::error::Error, "a checkpoint was lost");
                let detail = serde_json::json!({ "why": error.to_string() });
                // On a full disk this fails, too; then the log has it.
                let _ = engine.record(sandbox.id(), &sandbox.info.workspace, "checkpoint_lost", detail);
            }
        });
        Ok(())
    }

    /// Makes a checkpoint because somebody asks for it.
    pub async fn checkpoint(
        self: &Arc<Self>,
        sandbox: &Arc<Sandbox>,
        name: Option<String>,
    ) -> Result<Checkpoint, CheckpointError> {
        sandbox.timeline.borrow().check_name(name.as_deref(), None)?;
        let mark = Mark { name, ..Mark::new(Cause::Request, "") };
        self.mark(sandbox, mark, None).await
    }

    async fn mark(
        self: &Arc<Self>,
        sandbox: &Arc<Sandbox>,
        mark: Mark,
        spared: Option<u64>,
    ) -> Result<Checkpoint, CheckpointError> {
        let frozen = self.freeze(sandbox, None, Listed::No, Some(mark), None).await?;
        let number = frozen.checkpoint.as_ref().map(|checkpoint| checkpoint.number).unwrap_or_default();
        // In a task of its own, like every save.
        let written = tokio::spawn(frozen.written(spared));
        written.await.unwrap_or(Err(SnapshotError::CutOff))?;
        Ok(sandbox.timeline.borrow().find(&number.to_string())?.clone())
    }

    /// Where a sandbox can go back to. What is being written is waited for.
    pub async fn timeline(&self, sandbox: &Sandbox) -> Timeline {
        let _nothing_pending = sandbox.saves.quiet().await;
        sandbox.timeline.borrow().clone()
    }

    /// Names a checkpoint, which keeps it, or takes its name away.
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

    /// Puts a sandbox back to a checkpoint, by number or name. It keeps its id; what runs in it ends, and what ran then
    /// goes on. Returns the checkpoint of where it was.
    pub async fn rewind(self: &Arc<Self>, sandbox: &Arc<Sandbox>, to: &str) -> Result<Rewound, CheckpointError> {
        let (engine, sandbox, to) = (self.clone(), sandbox.clone(), to.to_owned());
        // In a task of its own: a caller that goes away must not leave it half way.
        let rewinding = tokio::spawn(async move { engine.rewind_inner(&sandbox, &to).await });
        rewinding.await.unwrap_or(Err(SnapshotError::CutOff.into()))
    }

    async fn rewind_inner(self: &Arc<Self>, sandbox: &Arc<Sandbox>, to: &str) -> Result<Rewound, CheckpointError> {
        let _in_use = sandbox.activity.begin();
        let to = self.timeline(sandbox).await.find(to)?.clone();
        let _held = self.hold_snapshot(&to.snapshot);
        if !sandbox.hibernates() {
            let mark = Mark::new(Cause::Rewind, &format!("rewind to {}", to.number));
            self.mark(sandbox, mark, Some(to.number)).await?;
        }
        let _nothing_pending = sandbox.saves.quiet().await;
        let (answer, answered) = oneshot::channel();
        sandbox.ask_task(Command::Rewind { to: to.clone(), answer }).await?;
        let was = answered.await.map_err(|_| SnapshotError::CutOff)??;
        sandbox.learned().await;
        self.sweep_behind();
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
