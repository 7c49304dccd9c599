//! Comparing two manifests.

use sandling_protocol::{EntryKind, TreeEntry};

use super::manifest::Manifest;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Added,
    Changed,
    Removed,
}

/// One file that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// Relative to the directory that was compared.
    pub path: String,
    pub before: Option<TreeEntry>,
    pub after: Option<TreeEntry>,
}

impl FileChange {
    pub fn change(&self) -> Change {
        match (&self.before, &self.after) {
            (None, _) => Change::Added,
            (_, None) => Change::Removed,
            _ => Change::Changed,
        }
    }

    /// Whether only a comparison of its bytes can tell if it changed.
    pub(super) fn is_doubtful(&self) -> bool {
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => before.kind == EntryKind::File && same_but_for_content(before, after),
            _ => false,
        }
    }
}

fn same_but_for_content(one: &TreeEntry, other: &TreeEntry) -> bool {
    let facts = |entry: &TreeEntry| (entry.kind, entry.mode, entry.uid, entry.gid, entry.target.clone());
    facts(one) == facts(other) && (one.kind != EntryKind::File || one.size == other.size)
}

/// Everything that may differ, in the order of the paths.
pub(super) fn compare(from: &Manifest, to: &Manifest) -> Vec<FileChange> {
    let mut changes = Vec::new();
    let change = |path: &String, before: Option<&TreeEntry>, after: Option<&TreeEntry>| FileChange {
        path: path.clone(),
        before: before.cloned(),
        after: after.cloned(),
    };
    for (path, before) in &from.entries {
        match to.entries.get(path) {
            None => changes.push(change(path, Some(before), None)),
            Some(after) if !same(before, after) => changes.push(change(path, Some(before), Some(after))),
            Some(_) => {}
        }
    }
    let added = to.entries.iter().filter(|(path, _)| !from.entries.contains_key(*path));
    changes.extend(added.map(|(path, after)| change(path, None, Some(after))));
    changes.sort_by(|one, other| one.path.cmp(&other.path));
    changes
}

/// A file is the same in two copies of one disk if nothing has changed it since they were copied. For directories and
/// links, the metadata is everything.
fn same(before: &TreeEntry, after: &TreeEntry) -> bool {
    let untouched = || {
        (before.inode, before.changed_unix_nanos, before.size) == (after.inode, after.changed_unix_nanos, after.size)
    };
    same_but_for_content(before, after) && (before.kind != EntryKind::File || untouched())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: EntryKind, inode: u64, changed: i64, size: u64) -> TreeEntry {
        TreeEntry {
            path: String::new(),
            kind,
            size,
            mode: 0o644,
            uid: 0,
            gid: 0,
            inode,
            changed_unix_nanos: changed,
            modified_unix_seconds: 0,
            target: None,
        }
    }

    fn manifest(entries: &[(&str, TreeEntry)]) -> Manifest {
        Manifest { entries: entries.iter().map(|(path, walked)| ((*path).to_owned(), walked.clone())).collect() }
    }

    #[test]
    fn only_what_was_touched_is_looked_at() {
        use EntryKind::{Directory, File};
        let from = manifest(&[
            ("dir", entry(Directory, 1, 1, 4096)),
            ("dir/gone", entry(File, 2, 1, 5)),
            ("dir/same", entry(File, 3, 1, 5)),
            ("dir/touched", entry(File, 4, 1, 5)),
            ("dir/grown", entry(File, 5, 1, 5)),
        ]);
        let to = manifest(&[
            ("dir", entry(Directory, 1, 9, 8192)),
            ("dir/same", entry(File, 3, 1, 5)),
            ("dir/touched", entry(File, 4, 9, 5)),
            ("dir/grown", entry(File, 5, 9, 6)),
            ("dir/new", entry(File, 6, 9, 5)),
        ]);
        let changes = compare(&from, &to);
        let told: Vec<_> = changes.iter().map(|change| (change.path.as_str(), change.change())).collect();
        let expected = [
            ("dir/gone", Change::Removed),
            ("dir/grown", Change::Changed),
            ("dir/new", Change::Added),
            ("dir/touched", Change::Changed),
        ];
        assert_eq!(told, expected);
        let doubtful: Vec<_> = changes.iter().filter(|change| change.is_doubtful()).map(|c| c.path.as_str()).collect();
        assert_eq!(doubtful, ["dir/touched"]);
    }
}
