//! How much space the uploads of a workspace take. Part of its usage, and therefore apart from the builds that need them.

use std::path::Path;

use crate::workspaces::WorkspaceName;

/// The beginning of the names of a workspace's files. The name of a workspace has no dots.
pub(crate) fn prefix(workspace: &WorkspaceName) -> String {
    format!("{workspace}.")
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) files: usize,
    pub(crate) bytes: u64,
}

/// The uploads of a workspace, including those that are being written.
pub(crate) fn stored(directory: &Path, workspace: &WorkspaceName) -> Stored {
    let prefix = prefix(workspace);
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let own = entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes()));
    let sizes = own.filter_map(|entry| entry.metadata().ok()).map(|file| file.len());
    sizes.fold(Stored::default(), |all, bytes| Stored { files: all.files + 1, bytes: all.bytes + bytes })
}
