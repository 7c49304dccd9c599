//! Where a snapshot's files are.

use std::fs;
use std::path::{Path, PathBuf};

use crate::model::{DISK, Part, SnapshotId};

const UNWRITTEN: &str = "unwritten";

/// Where a snapshot's files are.
#[derive(Debug, Clone)]
pub(crate) struct Files(PathBuf);

impl Files {
    pub(crate) fn new(snapshots: &Path, id: &SnapshotId) -> Self {
        Self(snapshots.join(id.as_str()))
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.0
    }

    pub(crate) fn pages(&self) -> PathBuf {
        self.0.join("pages")
    }

    pub(crate) fn map(&self) -> PathBuf {
        self.0.join("map")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.0.join("state")
    }

    pub(crate) fn disk(&self) -> PathBuf {
        self.0.join(DISK)
    }

    /// The file of a layer.
    pub(crate) fn layer(&self, part: Part) -> PathBuf {
        match part {
            Part::Memory => self.pages(),
            Part::Disk => self.disk(),
        }
    }

    pub(crate) fn volume(&self, slot: u32) -> PathBuf {
        self.0.join(format!("volume-{slot}.img"))
    }

    /// Of an imported bake: its memory and its template's root disk. What it wrote to that is [`Files::disk`].
    pub(crate) fn base_memory(&self) -> PathBuf {
        self.0.join("memory")
    }

    pub(crate) fn base_root(&self) -> PathBuf {
        self.0.join("root.img")
    }

    pub(crate) fn overlay(&self) -> PathBuf {
        self.0.join("overlay.qcow2")
    }

    /// Exists while machines may run on pages that are not all written. It stays if they cannot be written.
    pub(super) fn unwritten(&self) -> PathBuf {
        self.0.join(UNWRITTEN)
    }

    /// Removes what a save that failed has written. The machine stands on the disk already.
    pub(super) fn leave_only_the_disk(&self) {
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            if entry.file_name() != DISK && entry.file_name() != UNWRITTEN {
                // What cannot be removed now is removed when nothing stands on the disk any more.
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}
