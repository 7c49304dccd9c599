//! How much space the stored layers of images take. Part of a workspace's usage, and therefore apart from the pulls.
//!
//! A layer is a file named by its digest. Beside it, a record is named by the digest and the workspace that fetched the
//! layer first, which the layer counts against.

use std::path::{Path, PathBuf};

use crate::workspaces::WorkspaceName;

/// The layer and the record that this workspace's layers have.
pub(crate) fn of_workspace(directory: &Path, workspace: &WorkspaceName) -> Vec<(PathBuf, PathBuf)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let own = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        // The name of a workspace has no dots.
        let digest = name.strip_suffix(workspace.as_str())?.strip_suffix('.')?;
        Some((directory.join(digest), entry.path()))
    });
    own.collect()
}

pub(crate) fn stored_bytes(directory: &Path, workspace: &WorkspaceName) -> u64 {
    let layers = of_workspace(directory, workspace).into_iter();
    layers.filter_map(|(layer, _)| layer.metadata().ok()).map(|file| file.len()).sum()
}
