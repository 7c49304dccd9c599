//! Disks that were saved many times are folded behind their machines, so that chains stay short and what only the
//! chain needed can go.

use std::sync::Arc;

use sandling_vmm::jail::LAYERS;
use sandling_vmm::machine::MachineError;
use tokio::sync::oneshot;

use super::info::SnapshotId;
use super::restore::RestoreError;
use crate::bake::Baked;
use crate::engine::Engine;
use crate::sandbox::{Command, Sandbox};
use crate::store::StoreError;

/// A disk on so many layers of snapshots is folded: each costs QEMU a descriptor, a cache, a look on every read, and half
/// a millisecond whenever the machine goes on after a save.
const FOLD_LAYERS: usize = 12;

#[derive(Debug, thiserror::Error)]
enum FoldError {
    #[error(transparent)]
    Layers(#[from] RestoreError),
    #[error(transparent)]
    Machine(#[from] MachineError),
    #[error("what it stood on was not swept")]
    Sweep(#[from] StoreError),
}

impl Engine {
    /// Folds a sandbox's disk if that is due: after a save, and after a wake, which is one save more. Behind the
    /// sandbox; only its next save waits for it.
    pub(crate) fn fold_behind(self: &Arc<Self>, sandbox: &Arc<Sandbox>) {
        if sandbox.standing.borrow().disk.len() < FOLD_LAYERS {
            return;
        }
        let (engine, sandbox) = (self.clone(), sandbox.clone());
        tokio::spawn(async move {
            if let Err(error) = engine.fold(&sandbox).await {
                // Its disk is as it was; the next save is the next try.
                tracing::warn!(sandbox = %sandbox.id(), error = &error as &dyn std::error::Error, "a disk was not folded");
            }
        });
    }

    async fn fold(self: &Arc<Self>, sandbox: &Arc<Sandbox>) -> Result<(), FoldError> {
        let _nothing_pending = sandbox.saves.quiet().await;
        let layers: Vec<SnapshotId> = sandbox.standing.borrow().disk.clone();
        // One that has ended, or stands still, is left alone.
        let Ok((live, _in_use)) = sandbox.live() else { return Ok(()) };
        if layers.len() < FOLD_LAYERS {
            return Ok(());
        }
        live.machine.fold_disk(&format!("{LAYERS}/{}", self.lowest_layer(sandbox)?)).await?;
        // A task that has ended has nothing to stand on.
        let (answer, answered) = oneshot::channel();
        let folded = Command::Folded { layers: layers.clone(), answer };
        if sandbox.ask_task(folded).await.is_ok() && answered.await.is_ok() {
            self.sweep_with(&layers).await?;
        }
        Ok(())
    }

    fn lowest_layer(&self, sandbox: &Sandbox) -> Result<String, RestoreError> {
        if let Some(base) = &sandbox.standing.borrow().base {
            return Ok(base.baked.clone());
        }
        let other = || RestoreError::OtherHardware(sandbox.info.bake.clone());
        let image = sandbox.info.image.parse().map_err(|_| other())?;
        let image = self.images.load_image(&image)?;
        Ok(Baked::load(&image.baked_dir(&sandbox.info.bake))?.ok_or_else(other)?.layer_name())
    }
}
