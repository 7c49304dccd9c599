//! Folding a disk: after many saves, its layers are merged behind the running machine, so that chains stay short and
//! layers that only the chain needed can be removed.

use std::sync::Arc;

use sandling_vmm::jail::LAYERS;
use sandling_vmm::machine::MachineError;
use tokio::sync::oneshot;

use super::command::Command;
use super::handle::Sandbox;
use crate::snapshot::{RestoreError, Snapshots};
use crate::store::StoreError;

/// A disk on this many layers of snapshots is folded. Each layer costs QEMU a descriptor, a cache, a lookup on every
/// read, and half a millisecond whenever the machine resumes after a save.
const FOLD_LAYERS: usize = 12;

#[derive(Debug, thiserror::Error)]
enum FoldError {
    #[error(transparent)]
    Layers(#[from] RestoreError),
    #[error(transparent)]
    Machine(#[from] MachineError),
    #[error("could not sweep the layers that the disk stood on")]
    Sweep(#[from] StoreError),
}

impl Sandbox {
    /// Folds the disk in the background if it has too many layers: after a save, and after a wake, which follows one.
    /// Only the next save waits for it.
    pub(crate) fn fold_behind(self: &Arc<Self>, snapshots: &Arc<Snapshots>) {
        if self.standing.borrow().disk.len() < FOLD_LAYERS {
            return;
        }
        let (sandbox, snapshots) = (self.clone(), snapshots.clone());
        tokio::spawn(async move {
            if let Err(error) = sandbox.fold(&snapshots).await {
                tracing::warn!(sandbox = %sandbox.id(), error = &error as &dyn std::error::Error, "could not fold a disk; the next save tries again");
            }
        });
    }

    async fn fold(&self, snapshots: &Snapshots) -> Result<(), FoldError> {
        let _nothing_pending = self.saves.quiet().await;
        let standing = self.standing.borrow().clone();
        // A sandbox that has ended or does not run is left alone.
        let Ok((live, _in_use)) = self.live() else { return Ok(()) };
        if standing.disk.len() < FOLD_LAYERS {
            return Ok(());
        }
        let lowest = snapshots.bake_layer(&self.info, &standing)?;
        live.machine.fold_disk(&format!("{LAYERS}/{lowest}")).await?;
        // A task that has ended stands on no layer.
        let (answer, answered) = oneshot::channel();
        let folded = Command::Folded { layers: standing.disk.clone(), answer };
        if self.ask_task(folded).await.is_ok() && answered.await.is_ok() {
            snapshots.sweep_with(&standing.disk).await?;
        }
        Ok(())
    }
}
