//! Where a snapshot's files are until they are complete and checked.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use sandling_wire::new_private_directory;

/// A directory among those of the snapshots. It has a lock, which the kernel lets go when this process dies, and it goes when
/// this is dropped.
pub(super) struct WorkDir {
    path: PathBuf,
    _lock: File,
}

impl WorkDir {
    pub(super) fn create(snapshots: &Path) -> io::Result<Self> {
        let path = snapshots.join(format!("import-{}", uuid::Uuid::new_v4()));
        new_private_directory(&path)?;
        let lock = File::open(&path)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { path, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Whether nobody works in a directory: it has no lock, and neither it nor a file in it was written for so long.
pub(super) fn is_abandoned(dir: &Path, after: Duration) -> bool {
    let Ok(opened) = File::open(dir) else { return false };
    // Shared: two who ask at once must not take each other for the worker.
    if flock(&opened, FlockOperation::NonBlockingLockShared).is_err() {
        return false;
    }
    let is_old = |path: &Path| {
        let age = fs::symlink_metadata(path).and_then(|found| found.modified()).ok().and_then(|at| at.elapsed().ok());
        age.is_some_and(|age| age > after)
    };
    is_old(dir) && fs::read_dir(dir).into_iter().flatten().flatten().all(|entry| is_old(&entry.path()))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    const AFTER: Duration = Duration::from_secs(600);

    fn age(path: &Path) {
        let long_ago = SystemTime::now() - 2 * AFTER;
        File::open(path).unwrap().set_modified(long_ago).unwrap();
    }

    #[test]
    fn only_a_directory_in_which_nobody_works_is_abandoned() {
        let snapshots = tempfile::tempdir().unwrap();
        let work = WorkDir::create(snapshots.path()).unwrap();
        let path = work.path().to_owned();
        age(&path);
        assert!(!is_abandoned(&path, AFTER), "its worker may wait for the next byte");
        drop(work);
        assert!(!path.exists());

        // A save has no lock, but it writes.
        fs::create_dir(&path).unwrap();
        let pages = path.join("pages");
        fs::write(&pages, "").unwrap();
        age(&path);
        assert!(!is_abandoned(&path, AFTER));
        age(&pages);
        assert!(is_abandoned(&path, AFTER));
    }
}
