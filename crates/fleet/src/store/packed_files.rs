//! Which chunks the files of this node were stored as, so that a layer is read once and not for each snapshot on top of it.
//!
//! This is a cache: the packs are looked for in the store before they are relied on.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use super::manifest::{Scope, StoredFile};
use crate::digest::Digest;

/// What was not used for so long is forgotten.
const KEEP_FOR: Duration = Duration::from_secs(30 * 24 * 3600);

pub struct PackedFiles(PathBuf);

impl PackedFiles {
    /// In a directory, which is created when it is needed.
    pub fn new(directory: PathBuf) -> Self {
        Self(directory)
    }

    fn path(&self, scope: &Scope, content: &str) -> PathBuf {
        self.0.join(Digest::of(format!("{} {content}", scope.as_text()).as_bytes()).to_string())
    }

    /// `content` names the bytes of the file.
    pub(super) fn get(&self, scope: &Scope, content: &str) -> Option<StoredFile> {
        let path = self.path(scope, content);
        let file: StoredFile = serde_json::from_slice(&fs::read(&path).ok()?).ok()?;
        let _ = fs::File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        (file.scope == *scope).then_some(file)
    }

    pub(super) fn put(&self, content: &str, file: &StoredFile) {
        let path = self.path(&file.scope, content);
        let text = serde_json::to_vec(file).expect("a file has only text and numbers");
        let new = path.with_extension("new");
        // Without it, the next snapshot reads the file again.
        let _ = fs::create_dir_all(&self.0).and_then(|()| fs::write(&new, text)).and_then(|()| fs::rename(&new, &path));
    }

    pub fn forget_old(&self) {
        let is_old = |entry: &fs::DirEntry| {
            let modified = entry.metadata().and_then(|file| file.modified()).ok();
            modified.and_then(|at| at.elapsed().ok()).is_some_and(|age| age > KEEP_FOR)
        };
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten().filter(is_old) {
            let _ = fs::remove_file(entry.path());
        }
    }
}
