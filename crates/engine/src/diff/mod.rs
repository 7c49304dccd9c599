//! What changed between two moments of one family: files added, changed and removed.
//!
//! The host never reads a guest's file system, because it is hostile. Guest agents read it: for `now`, the agent of the
//! running machine; for a saved moment, the agent of a machine that is restored for this purpose. That machine has no
//! network, runs nothing but its agent, and ends afterwards. Each agent lists its tree, which takes a second, and the host
//! compares the lists. Two copies of one disk have the same file if inode, size and change time are equal; no program in a
//! guest can forge a change time without setting the clock. Only files that differ are read.
//!
//! The host trusts a guest's list only about that guest's own files, and drops names that would lead out of the directory
//! into which a diff is unpacked.

mod compare;
mod content;
mod hunks;
mod manifest;
mod patch;
mod point;
mod side;
mod tar;

pub use compare::{Change, FileChange};
pub(crate) use manifest::list_paths;
pub use patch::{FilePatch, LeftOut};
pub use point::Point;
pub use tar::TarStream;

use std::sync::Arc;

use crate::engine::Engine;
use crate::link::LinkError;
use crate::model::TimelineError;
use crate::sandbox::CreateError;
use crate::sandbox::UseError;
use crate::snapshot::SnapshotError;
use crate::store::StoreError;

use side::Side;

/// Directories that are skipped unless `path` names them: they hold no work of the user.
pub const SKIPPED: [&str; 5] = ["/proc", "/sys", "/dev", "/run", "/tmp"];
/// A diff with more changes than this is refused.
const MOST_CHANGES: usize = 20_000;

#[derive(Debug, thiserror::Error)]
pub enum DiffError {
    #[error(
        "`{0}` is neither `now`, nor a checkpoint of the sandbox, nor a sandbox, nor SANDBOX@CHECKPOINT, nor a snapshot"
    )]
    Point(String),
    #[error("the two stand on different templates, so nothing of them can be compared")]
    Strangers,
    #[error("{0} files differ, which is more than {MOST_CHANGES}; name a directory with `path`")]
    TooMany(usize),
    #[error("the tree is too large to be compared; name a directory with `path`")]
    TooLarge,
    #[error("the patch would be larger than {0} MiB; take a tar, or name a directory with `path`")]
    PatchTooLarge(usize),
    #[error("`path` must be an absolute path without `.` and `..`")]
    Path,
    #[error(transparent)]
    Timeline(#[from] TimelineError),
    #[error(transparent)]
    Use(#[from] UseError),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error(transparent)]
    Create(#[from] CreateError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<LinkError> for DiffError {
    fn from(error: LinkError) -> Self {
        Self::Use(error.into())
    }
}

/// Two moments to compare. Dropping it ends the machines that were restored for it.
pub struct Diff {
    from: Side,
    to: Side,
    root: String,
    changes: Vec<FileChange>,
}

impl Engine {
    /// Compares two moments below a directory, `/` for everything but [`SKIPPED`].
    pub async fn diff(self: &Arc<Self>, from: &Point, to: &Point, root: &str) -> Result<Diff, DiffError> {
        let root = checked_root(root)?;
        if from.image() != to.image() {
            return Err(DiffError::Strangers);
        }
        let (from, to) = tokio::try_join!(Side::look(self, from, &root), Side::look(self, to, &root))?;
        // A directory that exists at one of the two moments was added or removed with all it contains.
        if let (Some(missing), Some(_)) = (&from.missing, &to.missing) {
            return Err(missing.clone().into());
        }
        let changes = compare::compare(&from.manifest, &to.manifest);
        if changes.len() > MOST_CHANGES {
            return Err(DiffError::TooMany(changes.len()));
        }
        let mut diff = Diff { from, to, root, changes };
        diff.drop_false_alarms().await?;
        Ok(diff)
    }
}

impl Diff {
    /// In the order of their paths, which are relative to the directory that was compared.
    pub fn changes(&self) -> &[FileChange] {
        &self.changes
    }

    fn path_in_guest(&self, path: &str) -> String {
        format!("{}/{path}", self.root.trim_end_matches('/'))
    }
}

fn checked_root(root: &str) -> Result<String, DiffError> {
    let root = root.trim_end_matches('/');
    let fits = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains('\0');
    match root.strip_prefix('/') {
        Some(rest) if rest.split('/').all(fits) => Ok(root.to_owned()),
        None if root.is_empty() => Ok("/".to_owned()),
        _ => Err(DiffError::Path),
    }
}
