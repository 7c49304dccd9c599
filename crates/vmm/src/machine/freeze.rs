//! Saving a machine that continues: it is stopped while QEMU writes its device state, a new overlay is put on its disk
//! and its process is copied. Its memory is read from the copy afterwards.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Instant;

use serde_json::json;

use super::blocking::blocking;
use super::command_line::{COPY_SOCKET, DISK};
use super::connect::connect;
use super::error::MachineError;
use super::handle::Machine;
use crate::accelerator::Accelerator;
use crate::disk::copy_sparse;
use crate::jail::FILES;
use crate::memory::{FreezeTimes, Frozen, connect_copy};

/// How often a process is copied until its threads can be recorded in the copy.
const COPIES: usize = 3;

/// A freeze that failed, before or after the disk got its new overlay. The guest runs again in either case.
#[derive(Debug, thiserror::Error)]
pub enum FreezeError {
    #[error("the machine could not be saved")]
    Before(#[source] MachineError),
    /// The disk has its new overlay, and keeps it.
    #[error("the machine's memory could not be saved")]
    After(#[source] MachineError),
}

impl Machine {
    /// Writes device state to `state` and makes `overlay` the disk's new overlay. Both are plain names in
    /// [`crate::jail::MachineDir::files`]; the caller has created the overlay on top of the current disk. The machine
    /// must have been restored. It runs when this returns, unless `afterwards` is [`Afterwards::Stopped`].
    ///
    /// `copies` are files that are plugged in, and the paths where they are copied to while the machine is stopped.
    pub async fn freeze(
        &self,
        state: &str,
        overlay: &str,
        memory_bytes: u64,
        afterwards: Afterwards,
        copies: Vec<(PathBuf, PathBuf)>,
    ) -> Result<Frozen, FreezeError> {
        let _nothing_lent = self.lending.nothing_lent().await.map_err(FreezeError::Before)?;
        let connection = self.connect_copy().await.map_err(FreezeError::Before)?;
        let begun = Instant::now();
        let mut times = FreezeTimes::default();
        let frozen = self.freeze_stopped(state, overlay, connection, memory_bytes, copies, &mut times).await;
        let resumed = match (&frozen, afterwards) {
            (Ok(_), Afterwards::Stopped) => Ok(()),
            _ => self.cont().await,
        };
        times.pause = begun.elapsed();
        if let Err(error) = resumed {
            // The caller must know whether the disk has its new overlay. The copy, which may hold the lock, is dropped
            // before the second attempt.
            let got = frozen.map(drop);
            let error = self.cont().await.err().unwrap_or(error);
            return Err(got.err().unwrap_or(FreezeError::After(error)));
        }
        let mut frozen = frozen?;
        frozen.times = times;
        Ok(frozen)
    }

    /// Stops the machine and makes `overlay` the disk's new overlay, as [`freeze`](Self::freeze) does, but saves neither
    /// memory nor device state.
    pub async fn stop_over(&self, overlay: &str) -> Result<(), MachineError> {
        let _nothing_lent = self.lending.nothing_lent().await?;
        self.stop().await?;
        self.put_overlay(overlay).await
    }

    async fn put_overlay(&self, overlay: &str) -> Result<(), MachineError> {
        let overlay = json!({
            "device": DISK, "snapshot-file": format!("{FILES}/{overlay}"), "format": "qcow2", "mode": "existing"
        });
        self.command("blockdev-snapshot-sync", overlay).await.map(drop)
    }

    /// Copies the process of a stopped machine, which stays stopped.
    pub async fn copy(&self, memory_bytes: u64) -> Result<Frozen, MachineError> {
        let connection = self.connect_copy().await?;
        self.copy_over(connection, memory_bytes).await
    }

    async fn connect_copy(&self) -> Result<UnixStream, MachineError> {
        let stream = connect(&self.dir.supervisor(), COPY_SOCKET).await;
        stream.and_then(connect_copy).map_err(MachineError::Connect)
    }

    async fn copy_over(&self, connection: UnixStream, memory_bytes: u64) -> Result<Frozen, MachineError> {
        // Only an emulated machine's process has translated code that is worth caching.
        let record = self.boundary.accelerator == Accelerator::Tcg;
        let mut copy = self.copy_once(connection, memory_bytes, record).await?;
        for _ in 1..COPIES {
            if !record || copy.thread_table().is_some() {
                break;
            }
            // A worker of QEMU's began or ended meanwhile, as they do for seconds after disk requests, or one of its threads
            // got no CPU on a busy host.
            drop(copy);
            copy = self.copy_once(self.connect_copy().await?, memory_bytes, record).await?;
        }
        Ok(copy)
    }

    async fn copy_once(&self, connection: UnixStream, memory_bytes: u64, record: bool) -> Result<Frozen, MachineError> {
        let original = self.pid();
        blocking(move || Frozen::take(connection, original, memory_bytes, record).map_err(MachineError::Process)).await
    }

    async fn freeze_stopped(
        &self,
        state: &str,
        overlay: &str,
        connection: UnixStream,
        memory_bytes: u64,
        copies: Vec<(PathBuf, PathBuf)>,
        times: &mut FreezeTimes,
    ) -> Result<Frozen, FreezeError> {
        let begun = Instant::now();
        self.stop().await.map_err(FreezeError::Before)?;
        times.stop = begun.elapsed();
        self.write_state(state).await.map_err(FreezeError::Before)?;
        times.state = begun.elapsed() - times.stop;
        copy_all(copies).await.map_err(FreezeError::Before)?;
        self.put_overlay(overlay).await.map_err(FreezeError::Before)?;
        times.disk = begun.elapsed() - times.stop - times.state;
        let copied = self.copy_over(connection, memory_bytes).await;
        times.copy = begun.elapsed() - times.stop - times.state - times.disk;
        copied.map_err(FreezeError::After)
    }
}

async fn copy_all(copies: Vec<(PathBuf, PathBuf)>) -> Result<(), MachineError> {
    if copies.is_empty() {
        return Ok(());
    }
    blocking(move || {
        for (from, to) in copies {
            copy_sparse(&from, &to).map_err(|source| MachineError::File { step: "copy", path: from, source })?;
        }
        Ok(())
    })
    .await
}

/// What the guest does after it has been saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Afterwards {
    Running,
    Stopped,
}
