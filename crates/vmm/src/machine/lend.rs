//! A disk that a machine has for a moment, to hand many bytes over at once: reading a disk costs an emulated guest much less
//! than reading the control channel.
//!
//! A machine has at most one such disk, and none when it is saved. The guest is not asked before the disk is removed, so
//! it cannot hold it.

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::error::MachineError;
use super::handle::Machine;
use super::plug::{PlugAccess, device, file_node, name};

/// Its address on the SCSI bus, far from those of volumes.
pub const LENT_SLOT: u32 = 63;
/// How long a save, or the next disk, waits for the guest to have read a disk.
const RETURN_LIMIT: Duration = Duration::from_secs(20);

/// Held while a disk is lent, and while a machine is saved.
#[derive(Debug, Clone, Default)]
pub(super) struct Lending(Arc<Mutex<()>>);

/// A disk that is plugged in. It stays until [`Machine::take_back`].
#[derive(Debug)]
pub struct Lent {
    _only: OwnedMutexGuard<()>,
}

impl Lending {
    /// Waits until nothing is lent, and keeps it so.
    pub(super) async fn nothing_lent(&self) -> Result<OwnedMutexGuard<()>, MachineError> {
        let nothing = tokio::time::timeout(RETURN_LIMIT, self.0.clone().lock_owned()).await;
        nothing.map_err(|_| MachineError::StillLent)
    }
}

impl Machine {
    /// Plugs a file in, which must be open only for reading, and whose length must be a multiple of 512.
    pub async fn lend(&self, file: &File) -> Result<Lent, MachineError> {
        let only = self.lending.nothing_lent().await?;
        let node = file_node(LENT_SLOT, PlugAccess::ReadOnly);
        self.plug_in(LENT_SLOT, node, device(LENT_SLOT), Some(file.as_fd())).await?;
        Ok(Lent { _only: only })
    }

    pub async fn take_back(&self, lent: Lent) -> Result<(), MachineError> {
        self.unplug(LENT_SLOT).await.inspect_err(|_| {
            // A machine that was saved now could not be restored without the disk.
            std::mem::forget(lent);
        })
    }

    /// Removes a disk that an earlier caller lent and did not take back.
    pub(super) async fn take_back_leftover(&self) -> Result<(), MachineError> {
        let nodes = self.command("query-named-block-nodes", json!({ "flat": true })).await?;
        let is_lent = |node: &Value| node["node-name"] == name(LENT_SLOT);
        if nodes.as_array().is_some_and(|nodes| nodes.iter().any(is_lent)) {
            self.unplug(LENT_SLOT).await?;
        }
        Ok(())
    }
}
