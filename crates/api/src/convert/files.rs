//! Files.

use sandling_engine::Sandbox;
use sandling_protocol::{Change, ChangeKind, Entry, EntryKind, WriteMode};
use sandling_wire::{ChangeView, DirParams, EntryView, WriteName};

use super::{IntoEngine, IntoWire};
use crate::error::ApiError;

/// The longest path that Linux accepts.
const MAX_PATH: usize = 4096;
const MAX_DEPTH: u32 = 64;

/// Checks that a path is absolute. The guest resolves it, so it cannot reach the host's files.
pub(crate) fn checked(path: String) -> Result<String, ApiError> {
    if !path.starts_with('/') {
        return Err(ApiError::bad_request("a path must be absolute"));
    }
    if path.contains('\0') || path.len() >= MAX_PATH {
        return Err(ApiError::bad_request(format!("a path must be shorter than {MAX_PATH} bytes, without a NUL")));
    }
    Ok(path)
}

/// Checks a path. A relative one starts in the working directory of the sandbox, if it has one.
pub(crate) fn resolved(sandbox: &Sandbox, path: String) -> Result<String, ApiError> {
    match sandbox.info().settings.process.workdir {
        Some(workdir) if !path.is_empty() && !path.starts_with('/') => {
            checked(format!("{}/{path}", workdir.trim_end_matches('/')))
        }
        _ => checked(path),
    }
}

/// Parses permission bits written as octal digits.
pub(crate) fn permissions(text: &str) -> Result<u32, ApiError> {
    Ok(sandling_service::parse_mode(text)?)
}

/// Checks the path and depth of a listing.
pub(crate) fn checked_dir(sandbox: &Sandbox, request: DirParams) -> Result<(String, u32), ApiError> {
    let depth = request.depth.unwrap_or(1);
    if !(1..=MAX_DEPTH).contains(&depth) {
        return Err(ApiError::bad_request(format!("depth must be between 1 and {MAX_DEPTH}")));
    }
    Ok((resolved(sandbox, request.path.unwrap_or_else(|| "/".to_owned()))?, depth))
}

into_engine!(enum WriteName => WriteMode { Replace, Append, CreateNew });

impl IntoWire for Entry {
    type Wire = EntryView;

    fn into_wire(self) -> EntryView {
        EntryView {
            name: self.name,
            path: self.path,
            is_dir: self.kind == EntryKind::Directory,
            size: self.size,
            mode: match self.kind {
                EntryKind::File => "f",
                EntryKind::Directory => "d",
                EntryKind::Symlink => "l",
                EntryKind::Other => "o",
            },
            permissions: format!("{:04o}", self.mode & 0o7777),
            uid: self.uid,
            gid: self.gid,
            mtime: self.modified_unix_ms.div_euclid(1000),
            target: self.target,
        }
    }
}

impl IntoWire for Change {
    type Wire = ChangeView;

    fn into_wire(self) -> ChangeView {
        let kind = match self.kind {
            ChangeKind::Created => "created",
            ChangeKind::Modified => "modified",
            ChangeKind::Removed => "removed",
            ChangeKind::Renamed => "renamed",
            ChangeKind::Attributes => "attributes",
            ChangeKind::Overflow => "overflow",
        };
        ChangeView { path: self.path, kind }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_absolute_short_and_without_nul() {
        assert!(checked("/a b/ü/../c".to_owned()).is_ok());
        for bad in ["", "a", "../etc", "/a\0b", &format!("/{}", "x".repeat(5000))] {
            assert!(checked(bad.to_owned()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn modes_are_octal() {
        assert_eq!(permissions("0755").unwrap(), 0o755);
        assert_eq!(permissions("644").unwrap(), 0o644);
        for bad in ["", "rwx", "888", "17777", "-1"] {
            assert!(permissions(bad).is_err(), "{bad:?}");
        }
    }
}
