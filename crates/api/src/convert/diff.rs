//! Differences between two points in time.

use sandling_engine::{DiffChange, FileChange, FilePatch};
use sandling_protocol::{EntryKind, TreeEntry};
use sandling_wire::{DiffView, FileView, StateView};

use super::IntoWire;

impl IntoWire for &TreeEntry {
    type Wire = StateView;

    fn into_wire(self) -> StateView {
        StateView {
            kind: match self.kind {
                EntryKind::File => "file",
                EntryKind::Directory => "directory",
                EntryKind::Symlink => "symlink",
                EntryKind::Other => "other",
            },
            size: self.size,
            mode: format!("{:04o}", self.mode),
            uid: self.uid,
            gid: self.gid,
            target: self.target.clone(),
        }
    }
}

fn file_view(change: &FileChange, patch: FilePatch) -> FileView {
    let (patch, no_patch) = match patch {
        FilePatch::Text(text) => (Some(text), None),
        FilePatch::LeftOut(why) => (None, Some(why.as_str())),
    };
    FileView {
        path: change.path.clone(),
        change: match change.change() {
            DiffChange::Added => "added",
            DiffChange::Changed => "changed",
            DiffChange::Removed => "removed",
        },
        before: change.before.as_ref().map(IntoWire::into_wire),
        after: change.after.as_ref().map(IntoWire::into_wire),
        patch,
        no_patch,
    }
}

pub(crate) fn diff_view(
    from: String,
    to: String,
    path: String,
    changes: &[FileChange],
    texts: Vec<FilePatch>,
) -> DiffView {
    let count = |wanted| changes.iter().filter(|change| change.change() == wanted).count();
    DiffView {
        from,
        to,
        path,
        added: count(DiffChange::Added),
        changed: count(DiffChange::Changed),
        removed: count(DiffChange::Removed),
        files: changes.iter().zip(texts).map(|(change, text)| file_view(change, text)).collect(),
    }
}
