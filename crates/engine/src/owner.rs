//! Which engines are alive: each holds a lock on a file of its own, which the kernel lets go when it dies.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// What the names of engines begin with whose sandboxes wait for the next such engine.
const SERVER: &str = "server-";

/// Whether this engine's sandboxes are to outlive it.
pub fn is_server(engine: &str) -> bool {
    engine.starts_with(SERVER)
}

/// This engine's sign of life.
#[derive(Debug)]
pub struct Owner {
    id: String,
    path: PathBuf,
    _lock: File,
}

impl Owner {
    pub fn new(engines: &Path) -> io::Result<Self> {
        Self::named(engines, uuid::Uuid::new_v4().simple().to_string())
    }

    /// One whose sandboxes outlive it.
    pub fn of_server(engines: &Path) -> io::Result<Self> {
        Self::named(engines, format!("{SERVER}{}", uuid::Uuid::new_v4().simple()))
    }

    fn named(engines: &Path, id: String) -> io::Result<Self> {
        let path = engines.join(&id);
        let lock = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { id, path, _lock: lock })
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    /// Whether the engine or server of this id is alive, this one included.
    pub fn is_alive(&self, id: &str) -> bool {
        id == self.id || self.path.parent().is_some_and(|engines| is_alive(engines, id))
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // A file that stays is swept by the next engine.
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether the engine of this id is alive. The file of a dead one is removed.
pub fn is_alive(engines: &Path, id: &str) -> bool {
    let path = engines.join(id);
    let Ok(file) = File::open(&path) else { return false };
    // Shared: two who ask at once must not take each other for the owner.
    if flock(&file, FlockOperation::NonBlockingLockShared).is_err() {
        return true;
    }
    let _ = fs::remove_file(&path);
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_is_alive_until_it_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let owner = Owner::new(dir.path()).unwrap();
        assert!(is_alive(dir.path(), owner.id()));
        let id = owner.id().to_owned();
        drop(owner);
        assert!(!is_alive(dir.path(), &id));
    }

    #[test]
    fn a_file_without_a_lock_is_a_dead_engine_and_is_swept() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("gone"), "").unwrap();
        assert!(!is_alive(dir.path(), "gone"));
        assert!(!dir.path().join("gone").exists());
    }
}
