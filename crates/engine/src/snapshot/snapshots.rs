//! The snapshots of one home directory, and which of them must not be swept right now.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandling_wire::Home;

use super::files::Files;
use super::overlay::Overlays;
use super::unwritten::Unwritten;
use crate::machine::Machines;
use crate::model::{SavedVolume, SnapshotId, SnapshotInfo};
use crate::store::{Store, StoreError};
use crate::transit::Transits;
use crate::volume::Volumes;

pub struct Snapshots {
    pub(super) store: Arc<Store>,
    pub(super) machines: Arc<Machines>,
    pub(super) volumes: Arc<Volumes>,
    /// Where the files are.
    pub(super) dir: PathBuf,
    pub(super) overlays: Overlays,
    /// Held by a sweep, so that there is one at a time.
    pub(super) sweeping: tokio::sync::Mutex<()>,
    pub(super) unwritten: Unwritten,
    pub(crate) transits: Transits,
    held: Mutex<Vec<SnapshotId>>,
}

/// Keeps a snapshot from being swept until it is dropped.
pub(crate) struct HeldSnapshot {
    snapshots: Arc<Snapshots>,
    id: SnapshotId,
}

impl Drop for HeldSnapshot {
    fn drop(&mut self) {
        let mut held = self.snapshots.held();
        if let Some(at) = held.iter().position(|id| *id == self.id) {
            held.swap_remove(at);
        }
    }
}

impl Snapshots {
    pub(crate) fn new(
        store: Arc<Store>,
        machines: Arc<Machines>,
        volumes: Arc<Volumes>,
        home: &Home,
    ) -> std::io::Result<Self> {
        let dir = home.snapshots();
        let overlays = Overlays::new(dir.clone());
        Ok(Self {
            store,
            machines,
            volumes,
            dir,
            overlays,
            sweeping: Default::default(),
            unwritten: Default::default(),
            transits: Transits::open(home.moves())?,
            held: Default::default(),
        })
    }

    /// Keeps a snapshot from being swept while something is made from it.
    pub(crate) fn hold(self: &Arc<Self>, id: &SnapshotId) -> HeldSnapshot {
        self.held().push(id.clone());
        HeldSnapshot { snapshots: self.clone(), id: id.clone() }
    }

    pub(super) fn held_now(&self) -> BTreeSet<SnapshotId> {
        self.held().iter().cloned().collect()
    }

    /// Does something to a snapshot, unless something is being made from it. Nobody can begin to before it is done.
    pub(super) fn unless_held<T>(&self, id: &SnapshotId, change: impl FnOnce() -> T) -> Option<T> {
        let held = self.held();
        (!held.contains(id)).then(change)
    }

    fn held(&self) -> MutexGuard<'_, Vec<SnapshotId>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the disk has all files of this home.
    pub(super) fn sync(&self) -> std::io::Result<()> {
        Ok(rustix::fs::syncfs(std::fs::File::open(&self.dir)?)?)
    }

    /// A snapshot by its id, in any workspace and listed or not. If its pages are still being written, its digests are
    /// not known yet.
    pub(crate) fn get(&self, id: &SnapshotId) -> Result<Option<SnapshotInfo>, StoreError> {
        let unwritten = self.unwritten.get(id);
        Ok(self.store.snapshot(id)?.map(|(info, _)| info).or(unwritten))
    }

    /// The volumes that a snapshot was saved with, and where their content is if it was copied.
    pub(crate) fn saved_volumes(&self, snapshot: &SnapshotInfo) -> Vec<(SavedVolume, PathBuf)> {
        let files = Files::new(&self.dir, &snapshot.id);
        snapshot.volumes.iter().map(|saved| (saved.clone(), files.volume(saved.was.slot))).collect()
    }
}
