//! A whole tree in one listing, which the host compares with another copy of it.

use std::fs::{self, Metadata};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use sandling_protocol::{FailureKind, Response, TreeEntry};

use super::entry::kind_of;
use super::list::Listing;
use super::path::about;
use super::serve::Stopped;
use crate::failure::failure;
use crate::worker::WorkerStream;

/// Sends everything below `path` on its file system. Leaves out what is unreadable or was removed meanwhile.
pub fn walk(path: &Path, skip: &[String], work: &mut WorkerStream) -> Result<Response, Stopped> {
    let top = fs::metadata(path).map_err(about(path))?;
    if !top.is_dir() {
        return Err(failure(FailureKind::NotADirectory, format!("{} is not a directory", path.display())).into());
    }
    let skipped = |path: &Path| skip.iter().any(|skip| path == Path::new(skip));
    let mut listing = Listing::new(work);
    let mut directories = vec![path.to_owned()];
    while let Some(directory) = directories.pop() {
        for (path, metadata) in children(&directory).filter(|(path, _)| !skipped(path)) {
            listing.add(&tree_entry(&path, &metadata))?;
            // Another file system is mounted there.
            if metadata.is_dir() && metadata.dev() == top.dev() {
                directories.push(path);
            }
        }
    }
    listing.finish()
}

fn children(directory: &Path) -> impl Iterator<Item = (PathBuf, Metadata)> {
    let found = fs::read_dir(directory).into_iter().flatten().flatten();
    found.filter_map(|entry| entry.metadata().ok().map(|metadata| (entry.path(), metadata)))
}

fn tree_entry(path: &Path, metadata: &Metadata) -> TreeEntry {
    let link = if metadata.is_symlink() { path.read_link().ok() } else { None };
    TreeEntry {
        path: path.to_string_lossy().into_owned(),
        kind: kind_of(metadata),
        size: metadata.len(),
        mode: metadata.permissions().mode() & 0o7777,
        uid: metadata.uid(),
        gid: metadata.gid(),
        inode: metadata.ino(),
        changed_unix_nanos: metadata.ctime().saturating_mul(1_000_000_000).saturating_add(metadata.ctime_nsec()),
        modified_unix_seconds: metadata.mtime(),
        target: link.map(|target| target.to_string_lossy().into_owned()),
    }
}
