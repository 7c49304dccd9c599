//! A file's metadata.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use sandling_protocol::{Entry, EntryKind, Failure};

use super::metadata;
use super::path::about;

/// Follows a link and reports its target; a broken link is reported as the link itself.
pub fn stat(path: &Path) -> Result<Entry, Failure> {
    let own = fs::symlink_metadata(path).map_err(about(path))?;
    let followed = if own.is_symlink() { fs::metadata(path).ok() } else { None };
    let mut entry = entry(path, &followed.unwrap_or(own));
    entry.target = link_of(path);
    Ok(entry)
}

pub fn kind_of(metadata: &Metadata) -> EntryKind {
    match metadata.file_type() {
        kind if kind.is_file() => EntryKind::File,
        kind if kind.is_dir() => EntryKind::Directory,
        kind if kind.is_symlink() => EntryKind::Symlink,
        _ => EntryKind::Other,
    }
}

pub fn entry(path: &Path, metadata: &Metadata) -> Entry {
    let kind = kind_of(metadata);
    Entry {
        path: path.to_string_lossy().into_owned(),
        name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        kind,
        size: metadata.len(),
        mode: metadata.permissions().mode() & 0o7777,
        uid: metadata.uid(),
        gid: metadata.gid(),
        modified_unix_ms: metadata.mtime() * 1000 + metadata.mtime_nsec() / 1_000_000,
        target: if kind == EntryKind::Symlink { link_of(path) } else { None },
        metadata: if kind == EntryKind::File { metadata::read(path) } else { BTreeMap::new() },
    }
}

fn link_of(path: &Path) -> Option<String> {
    path.read_link().ok().map(|target| target.to_string_lossy().into_owned())
}
