//! Storing the process of a machine that is saved.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::mpsc;

use sandling_vmm::memory::{Frozen, MemoryMap};
use tokio::sync::oneshot;

use super::{Saving, Startable};
use crate::model::disk_layer_name;
use crate::process_cache::CapturedPages;
use crate::snapshot::files::Files;
use crate::snapshot::waiting::WaitingSaves;

/// By how much the priority of a thread is lower that stores a process for which nobody waits.
const BEHIND: i32 = 5;

/// Where a snapshot is announced from which machines can be started, and the snapshot.
type Start = (oneshot::Sender<Startable>, Startable);

impl Saving {
    /// Stores the machine's process in the process cache. A machine that is restored without it is only slower.
    fn save_process(&self, frozen: &Frozen) -> io::Result<Option<CapturedPages>> {
        if !self.info.volumes.is_empty() {
            return Ok(None);
        }
        let layers = self.info.disk.iter().filter_map(|id| {
            let disk = fs::metadata(Files::new(&self.snapshots.dir, id).disk()).ok()?;
            Some((disk.ino(), disk_layer_name(id)))
        });
        let layers: Vec<_> = layers.collect();
        let is_given_up = || self.behind.as_ref().is_some_and(WaitingSaves::any);
        let process_cache = &self.snapshots.machines.factory.process_cache;
        process_cache.capture(self.files.dir(), frozen, &self.machine, &layers, &is_given_up)
    }

    /// Stores the machine's process and, when the pages of guest memory are selected, makes it usable. From then on
    /// machines can be started. Returns the size of what was stored.
    pub(super) fn cache_process(&self, frozen: &Frozen, selected: mpsc::Receiver<(MemoryMap, Option<Start>)>) -> u64 {
        if self.behind.is_some() {
            // Of this thread alone. If it fails, the command that runs meanwhile is slower.
            let _ = rustix::process::nice(BEHIND);
        }
        let captured = self.save_process(frozen);
        let bytes = captured.as_ref().ok().and_then(Option::as_ref).map(CapturedPages::stored_bytes);
        // Without a selection the save has failed, and its files are removed.
        let Ok((guest, start)) = selected.recv() else { return 0 };
        if let Err(error) = self.snapshots.machines.factory.process_cache.finish(self.files.dir(), captured, &guest) {
            if error.kind() != io::ErrorKind::ResourceBusy {
                tracing::warn!(snapshot = %self.info.id, %error, "the process of a snapshot is not cached");
            }
            return 0;
        }
        if let Some((started, startable)) = start.filter(|_| bytes.is_some()) {
            // The caller may have gone; the snapshot is finished all the same.
            let _ = started.send(startable);
        }
        bytes.unwrap_or_default()
    }
}
