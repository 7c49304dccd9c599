//! What changed between two moments.

use sandling_engine::{DiffChange, FileChange, FilePatch, FileState};
use sandling_protocol::EntryKind;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct DiffParams {
    /// A checkpoint's number or name, `now`, another sandbox's id, `SANDBOX@CHECKPOINT`, or a snapshot's id.
    pub(crate) from: String,
    /// The same; `now` if absent.
    pub(crate) to: Option<String>,
    /// The directory that is compared; `/` if absent.
    pub(crate) path: Option<String>,
    /// `json` if absent.
    pub(crate) format: Option<DiffFormat>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct AnyDiffParams {
    /// A sandbox's id, `SANDBOX@CHECKPOINT`, or a snapshot's id.
    pub(crate) from: String,
    /// The same.
    pub(crate) to: String,
    /// The directory that is compared; `/` if absent.
    pub(crate) path: Option<String>,
    /// `json` if absent.
    pub(crate) format: Option<DiffFormat>,
}

#[derive(Debug, Default, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DiffFormat {
    #[default]
    Json,
    /// For `git apply`, or `patch -p1` where all that changed is text.
    Patch,
    /// What was added and changed.
    Tar,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DiffView {
    pub(crate) from: String,
    pub(crate) to: String,
    /// The directory that was compared; the paths are relative to it.
    pub(crate) path: String,
    pub(crate) added: usize,
    pub(crate) changed: usize,
    pub(crate) removed: usize,
    /// In the order of their paths.
    pub(crate) files: Vec<FileView>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FileView {
    path: String,
    /// `added`, `changed` or `removed`.
    change: &'static str,
    before: Option<StateView>,
    after: Option<StateView>,
    /// The text diff, as it stands in a patch; empty where only the owner or the finer permissions differ.
    patch: Option<String>,
    /// Why there is no text diff: `binary`, `too_large`, `special` or `unreadable`.
    no_patch: Option<&'static str>,
}

#[derive(Debug, Serialize, ToSchema)]
struct StateView {
    /// `file`, `directory`, `symlink` or `other`.
    kind: &'static str,
    size: u64,
    /// Octal.
    mode: String,
    uid: u32,
    gid: u32,
    target: Option<String>,
}

impl From<&FileState> for StateView {
    fn from(state: &FileState) -> Self {
        Self {
            kind: match state.kind {
                EntryKind::File => "file",
                EntryKind::Directory => "directory",
                EntryKind::Symlink => "symlink",
                EntryKind::Other => "other",
            },
            size: state.size,
            mode: format!("{:04o}", state.mode),
            uid: state.uid,
            gid: state.gid,
            target: state.target.clone(),
        }
    }
}

impl FileView {
    fn new(change: &FileChange, patch: FilePatch) -> Self {
        let (patch, no_patch) = match patch {
            FilePatch::Text(text) => (Some(text), None),
            FilePatch::LeftOut(why) => (None, Some(why.as_str())),
        };
        Self {
            path: change.path.clone(),
            change: match change.change() {
                DiffChange::Added => "added",
                DiffChange::Changed => "changed",
                DiffChange::Removed => "removed",
            },
            before: change.before.as_ref().map(StateView::from),
            after: change.after.as_ref().map(StateView::from),
            patch,
            no_patch,
        }
    }
}

impl DiffView {
    pub(crate) fn new(from: String, to: String, path: String, changes: &[FileChange], texts: Vec<FilePatch>) -> Self {
        let count = |wanted| changes.iter().filter(|change| change.change() == wanted).count();
        Self {
            from,
            to,
            path,
            added: count(DiffChange::Added),
            changed: count(DiffChange::Changed),
            removed: count(DiffChange::Removed),
            files: changes.iter().zip(texts).map(|(change, text)| FileView::new(change, text)).collect(),
        }
    }
}
