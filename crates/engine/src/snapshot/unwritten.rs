//! Snapshots that machines are started from while their pages are still being written.
//!
//! They have no row yet. What a machine does with such a snapshot waits for its pages: the machine's own saves, and the
//! end of the sandbox whose frozen copy the pages are read from. A file beside the pages says that they are not all there,
//! so that the next engine does not take over a machine that would wait for them forever.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fs, io};

use super::files::Files;
use super::snapshots::Snapshots;
use crate::machine::{PagesWritten, WritingPages};
use crate::model::{SandboxId, SnapshotId, SnapshotInfo};

/// Each of them, as far as it is known.
#[derive(Default)]
pub(super) struct Unwritten(Mutex<BTreeMap<SnapshotId, (SnapshotInfo, PagesWritten)>>);

impl Unwritten {
    pub(super) fn get(&self, id: &SnapshotId) -> Option<SnapshotInfo> {
        self.all().get(id).map(|(info, _)| info.clone())
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<SnapshotId, (SnapshotInfo, PagesWritten)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Held while the pages of a snapshot are written.
pub(super) struct WritingSnapshot {
    snapshots: Arc<Snapshots>,
    id: SnapshotId,
    writing: Option<WritingPages>,
    written: PagesWritten,
}

impl WritingSnapshot {
    /// Tells when the pages are written.
    pub(super) fn written(&self) -> PagesWritten {
        self.written.clone()
    }

    /// The pages and the row are written.
    pub(super) fn done(mut self) {
        // If it stays, the row still shows that the pages are written.
        let _ = fs::remove_file(Files::new(&self.snapshots.dir, &self.id).unwritten());
        if let Some(writing) = self.writing.take() {
            writing.done();
        }
    }
}

impl Drop for WritingSnapshot {
    fn drop(&mut self) {
        self.snapshots.unwritten.all().remove(&self.id);
    }
}

impl Snapshots {
    /// Lets machines start from a snapshot whose pages are about to be written.
    pub(super) fn begin_writing(self: &Arc<Self>, info: &SnapshotInfo) -> io::Result<WritingSnapshot> {
        fs::write(Files::new(&self.dir, &info.id).unwritten(), "")?;
        let (writing, written) = WritingPages::begin();
        self.unwritten.all().insert(info.id.clone(), (info.clone(), written.clone()));
        Ok(WritingSnapshot { snapshots: self.clone(), id: info.id.clone(), writing: Some(writing), written })
    }

    /// Whether an engine that has died left the snapshot without some of its pages, although machines ran on them.
    pub(crate) fn lacks_pages(&self, id: &SnapshotId) -> bool {
        Files::new(&self.dir, id).unwritten().exists() && matches!(self.store.snapshot(id), Ok(None))
    }

    /// Waits until the pages of these snapshots are written, or cannot be.
    async fn written_if(&self, wanted: impl Fn(&SnapshotInfo) -> bool) {
        let waiting: Vec<_> = self
            .unwritten
            .all()
            .values()
            .filter(|(info, _)| wanted(info))
            .map(|(_, written)| written.clone())
            .collect();
        for written in waiting {
            written.wait().await;
        }
    }

    /// Waits until the pages of a snapshot are written, or cannot be.
    pub(crate) async fn written(&self, id: &SnapshotId) {
        self.written_if(|info| info.id == *id).await;
    }

    /// The same for the snapshots of a sandbox.
    pub(crate) async fn written_of(&self, sandbox: &SandboxId) {
        self.written_if(|info| info.sandbox == *sandbox).await;
    }

    /// The same for all snapshots.
    pub(crate) async fn all_written(&self) {
        self.written_if(|_| true).await;
    }
}
