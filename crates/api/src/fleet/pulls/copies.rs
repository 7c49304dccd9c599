//! Which templates this node has copied from other nodes: `fleet/copies.json`.
//!
//! An entry is written before its template is copied, so every copy has one.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

const VERSION: u32 = 1;

/// A template that was copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CopiedTemplate {
    /// Built-in templates are in that of the default workspace.
    pub(super) workspace: String,
    pub(super) name: String,
    /// Two templates with the same content are the same.
    pub(super) content: String,
    /// The node that gave it.
    pub(super) from: String,
    /// `None` while it is being copied.
    pub(super) copied_at: Option<Timestamp>,
    pub(super) state: CopyState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CopyState {
    /// The server has copied it by itself, and removes it when the other node does not have it any more.
    Follows,
    /// Somebody has asked for it, so it stays.
    Stays,
    /// Somebody has removed it here, so it is not copied again while the other node has it.
    Removed,
}

impl CopiedTemplate {
    pub(super) fn is_of(&self, workspace: &str, name: &str) -> bool {
        self.workspace == workspace && self.name == name
    }
}

#[derive(Serialize, Deserialize)]
struct Document {
    version: u32,
    copies: Vec<CopiedTemplate>,
}

/// Why the file cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum CopiesError {
    #[error("fleet/copies.json was written by a newer version of Sandling (its version is {0}); update this node")]
    Newer(u32),
    #[error(
        "fleet/copies.json cannot be read ({0}); restore it, or remove it: then copies of templates count as this node's own"
    )]
    Unreadable(String),
    #[error("fleet/copies.json cannot be written; is the disk full?")]
    Unwritable,
}

pub(super) struct Copies {
    path: PathBuf,
    all: Mutex<Result<Vec<CopiedTemplate>, CopiesError>>,
}

impl Copies {
    pub(super) fn open(path: PathBuf) -> Self {
        let all = match fs::read(&path) {
            Ok(text) => parse(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(CopiesError::Unreadable(error.kind().to_string())),
        };
        Self { path, all: Mutex::new(all) }
    }

    pub(super) fn all(&self) -> Result<Vec<CopiedTemplate>, CopiesError> {
        self.lock().clone()
    }

    /// The entry of a template.
    pub(super) fn find(&self, workspace: &str, name: &str) -> Result<Option<CopiedTemplate>, CopiesError> {
        Ok(self.all()?.into_iter().find(|copy| copy.is_of(workspace, name)))
    }

    /// Replaces the entry of a template.
    pub(super) fn put(&self, copy: CopiedTemplate) -> Result<(), CopiesError> {
        self.change(|all| {
            all.retain(|old| !old.is_of(&copy.workspace, &copy.name));
            all.push(copy);
        })
    }

    pub(super) fn forget(&self, workspace: &str, name: &str) -> Result<(), CopiesError> {
        self.change(|all| all.retain(|old| !old.is_of(workspace, name)))
    }

    /// Writes the file if that changes something. If it cannot be written, nothing has changed.
    fn change(&self, change: impl FnOnce(&mut Vec<CopiedTemplate>)) -> Result<(), CopiesError> {
        let mut all = self.lock();
        let before = all.clone()?;
        let mut after = before.clone();
        change(&mut after);
        if after != before {
            let written = write(&self.path, &Document { version: VERSION, copies: after.clone() });
            written.map_err(|error| {
                tracing::warn!(error = &error as &dyn std::error::Error, "fleet/copies.json cannot be written");
                CopiesError::Unwritable
            })?;
            *all = Ok(after);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Result<Vec<CopiedTemplate>, CopiesError>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the version first, because the rest of a newer file may not be readable.
fn parse(text: &[u8]) -> Result<Vec<CopiedTemplate>, CopiesError> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    let unreadable = |error: serde_json::Error| CopiesError::Unreadable(error.to_string());
    let Versioned { version } = serde_json::from_slice(text).map_err(unreadable)?;
    if version > VERSION {
        return Err(CopiesError::Newer(version));
    }
    let document: Document = serde_json::from_slice(text).map_err(unreadable)?;
    Ok(document.copies)
}

/// A reader, even after a power failure, finds the old content or the new.
fn write(path: &Path, document: &Document) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    serde_json::to_writer_pretty(&mut file, document)?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOLDEN: &str = include_str!("../../../tests/golden/v1/copies.json");

    fn copy(name: &str, content: &str) -> CopiedTemplate {
        let [workspace, from] = ["default", "a"].map(str::to_owned);
        let [name, content] = [name, content].map(str::to_owned);
        CopiedTemplate { workspace, name, content, from, copied_at: None, state: CopyState::Follows }
    }

    #[test]
    fn a_file_of_the_first_version_is_read_and_written_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("copies.json");
        fs::write(&path, GOLDEN).unwrap();
        let copies = Copies::open(path.clone());
        let all = copies.all().unwrap();
        let states: Vec<_> = all.iter().map(|copy| copy.state).collect();
        assert_eq!(states, [CopyState::Follows, CopyState::Stays, CopyState::Removed, CopyState::Follows]);
        assert_eq!(all[1].workspace, "team");
        assert!(all[3].copied_at.is_none(), "it was being copied");
        copies.put(copy("new", "1")).unwrap();
        copies.forget("default", "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), GOLDEN);
    }

    #[test]
    fn a_template_has_one_entry_and_the_next_server_knows_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("copies.json");
        let copies = Copies::open(path.clone());
        assert_eq!(copies.all().unwrap(), []);
        for content in ["1", "2"] {
            copies.put(copy("mine", content)).unwrap();
        }
        copies.put(copy("other", "3")).unwrap();
        let next = Copies::open(path);
        assert_eq!(next.find("default", "mine").unwrap().unwrap().content, "2");
        assert_eq!(next.all().unwrap().len(), 2);
        assert!(next.find("team", "mine").unwrap().is_none());
        next.forget("default", "mine").unwrap();
        assert!(next.find("default", "mine").unwrap().is_none());
    }

    #[test]
    fn a_file_that_cannot_be_read_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("copies.json");
        for (text, why) in [("{\"version\":2,\"copies\":{}}", "newer version"), ("{", "cannot be read")] {
            fs::write(&path, text).unwrap();
            let copies = Copies::open(path.clone());
            let error = copies.put(copy("mine", "1")).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }
}
