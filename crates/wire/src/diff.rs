//! Differences between two states of a file system.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct DiffParams {
    /// A checkpoint's number or name, `now`, another sandbox's id, `SANDBOX@CHECKPOINT`, or a snapshot's id.
    pub from: String,
    /// The same; `now` if absent.
    pub to: Option<String>,
    /// The directory to compare; `/` if absent.
    pub path: Option<String>,
    /// `json` if absent.
    pub format: Option<DiffFormat>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct AnyDiffParams {
    /// A sandbox's id, `SANDBOX@CHECKPOINT`, or a snapshot's id.
    pub from: String,
    /// The same.
    pub to: String,
    /// The directory to compare; `/` if absent.
    pub path: Option<String>,
    /// `json` if absent.
    pub format: Option<DiffFormat>,
}

#[derive(Debug, Default, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiffFormat {
    #[default]
    Json,
    /// For `git apply`, or for `patch -p1` if only text files changed.
    Patch,
    /// The files that were added or changed.
    Tar,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct DiffView {
    pub from: String,
    pub to: String,
    /// The directory that was compared; the paths are relative to it.
    pub path: String,
    pub added: usize,
    pub changed: usize,
    pub removed: usize,
    /// Sorted by path.
    pub files: Vec<FileView>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct FileView {
    pub path: String,
    /// `added`, `changed` or `removed`.
    pub change: &'static str,
    pub before: Option<StateView>,
    pub after: Option<StateView>,
    /// The text diff as in a patch; empty if only the owner or permissions other than `x` differ.
    pub patch: Option<String>,
    /// Why there is no text diff: `binary`, `too_large`, `special` or `unreadable`.
    pub no_patch: Option<&'static str>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct StateView {
    /// `file`, `directory`, `symlink` or `other`.
    pub kind: &'static str,
    pub size: u64,
    /// Octal.
    pub mode: String,
    pub uid: u32,
    pub gid: u32,
    pub target: Option<String>,
}
