//! The tree below a directory at one moment, as the guest lists it.

use std::collections::BTreeMap;
use std::time::Duration;

use sandling_protocol::{EntryKind, Request, TreeEntry};

use super::DiffError;
use crate::link::{Link, LinkError};

const MOST_ENTRIES: usize = 500_000;
const MOST_BYTES: usize = 128 << 20;
/// How long a guest may take to list its tree.
const WITHIN: Duration = Duration::from_secs(120);

/// Entries by their path relative to the directory. Paths have no `.` and `..`, and every parent is a directory.
#[derive(Debug, Default)]
pub(super) struct Manifest {
    pub(super) entries: BTreeMap<String, TreeEntry>,
}

impl Manifest {
    pub(super) async fn of(link: &Link, root: &str, skip: &[String]) -> Result<Self, DiffError> {
        let request = Request::Walk { path: root.to_owned(), skip: skip.to_vec() };
        let stream = link.open(request, &[])?;
        let mut lines = Vec::new();
        let keep = |_, bytes: Vec<u8>| {
            if lines.len() <= MOST_BYTES {
                lines.extend(bytes);
            }
        };
        let ended = tokio::time::timeout(WITHIN, stream.drain(keep)).await;
        ended.unwrap_or(Err(LinkError::NoAnswer))?;
        if lines.len() > MOST_BYTES {
            return Err(DiffError::TooLarge);
        }
        let root = root.to_owned();
        let reading = tokio::task::spawn_blocking(move || Self::read(&lines, &root));
        reading.await.unwrap_or(Err(LinkError::Unexpected.into()))
    }

    fn read(lines: &[u8], root: &str) -> Result<Self, DiffError> {
        let mut entries = BTreeMap::new();
        for line in lines.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            let mut walked: TreeEntry = serde_json::from_slice(line).map_err(|_| LinkError::Unexpected)?;
            let Some(path) = below(root, &walked.path).map(str::to_owned) else { continue };
            // The map's key has the path.
            walked.path.clear();
            if walked.kind != EntryKind::File {
                walked.size = 0;
            }
            entries.insert(path, walked);
            if entries.len() > MOST_ENTRIES {
                return Err(DiffError::TooLarge);
            }
        }
        let mut manifest = Self { entries };
        manifest.drop_orphans();
        Ok(manifest)
    }

    /// Drops entries whose parent is not listed as a directory: unpacking them could write through a symbolic link.
    fn drop_orphans(&mut self) {
        let mut kept: BTreeMap<String, TreeEntry> = BTreeMap::new();
        // A directory sorts before its entries.
        for (path, walked) in std::mem::take(&mut self.entries) {
            let housed = match path.rsplit_once('/') {
                Some((parent, _)) => kept.get(parent).is_some_and(|parent| parent.kind == EntryKind::Directory),
                None => true,
            };
            if housed {
                kept.insert(path, walked);
            }
        }
        self.entries = kept;
    }
}

/// The paths that a guest lists below the root. For fuzzing.
pub(crate) fn list_paths(lines: &[u8], root: &str) -> Result<Vec<String>, DiffError> {
    Ok(Manifest::read(lines, root)?.entries.into_keys().collect())
}

/// The path below the root, if it stays below it.
fn below<'a>(root: &str, path: &'a str) -> Option<&'a str> {
    let rest = path.strip_prefix(root.trim_end_matches('/'))?.strip_prefix('/')?;
    let plain = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains('\0');
    rest.split('/').all(plain).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(path: &str, kind: &str) -> String {
        format!(
            "{}\n",
            serde_json::json!({ "p": path, "k": kind, "s": 1, "m": 420, "u": 0, "g": 0, "i": 1, "c": 1, "t": 1 })
        )
    }

    fn paths(lines: &str, root: &str) -> Vec<String> {
        Manifest::read(lines.as_bytes(), root).unwrap().entries.into_keys().collect()
    }

    #[test]
    fn paths_are_relative_to_the_directory() {
        let lines = line("/work/a", "directory") + &line("/work/a/b", "file") + &line("/works", "file");
        assert_eq!(paths(&lines, "/work"), ["a", "a/b"]);
        assert_eq!(paths(&line("/a", "file"), "/"), ["a"]);
    }

    #[test]
    fn what_would_lead_elsewhere_when_unpacked_is_dropped() {
        let lines = [
            line("/../../etc/passwd", "file"),
            line("//etc", "file"),
            line("/a/./b", "file"),
            line("a", "file"),
            line("/link", "symlink"),
            line("/link/passwd", "file"),
            line("/orphan/file", "file"),
            line("/nul\0", "file"),
        ];
        assert_eq!(paths(&lines.concat(), "/"), ["link"]);
    }

    #[test]
    fn what_is_no_entry_is_refused() {
        assert!(Manifest::read(b"{\"p\":1}\n", "/").is_err());
    }

    proptest! {
        #[test]
        fn no_path_leaves_its_directory(path in "[./a-c\\PC]{0,30}") {
            if let Some(rest) = below("/r", &path) {
                prop_assert!(rest.split('/').all(|part| !["", ".", ".."].contains(&part)));
            }
        }
    }
}
