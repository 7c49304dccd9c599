//! The parsers of untrusted bytes, for fuzzing. No part of the crate's API.

use std::path::Path;

use crate::diff::{DiffError, list_paths};
use crate::machine::check_bake_manifest;
use crate::model::{SandboxInfo, SnapshotInfo, read_row, rewrite};
use crate::snapshot::{ImportError, read_export as read_decompressed};

/// Reads a decompressed export into an empty directory, up to the point where an import moves the files away.
pub fn read_export(mut bytes: &[u8], work: &Path) -> Result<(), ImportError> {
    read_decompressed(&mut bytes, work)
}

/// The paths of a tree, as a guest lists it.
pub fn read_tree(lines: &[u8], root: &str) -> Result<Vec<String>, DiffError> {
    list_paths(lines, root)
}

/// Whether a text is the manifest of a bake.
pub fn is_bake_manifest(text: &[u8]) -> bool {
    check_bake_manifest(text)
}

/// Reads the row of a sandbox and writes it again. `None` if it cannot be read.
pub fn rewrite_sandbox(row: &str) -> Option<String> {
    rewrite(row, &read_row::<SandboxInfo>(row).ok()?).ok()
}

/// Reads the row of a snapshot and writes it again. `None` if it cannot be read.
pub fn rewrite_snapshot(row: &str) -> Option<String> {
    rewrite(row, &read_row::<SnapshotInfo>(row).ok()?).ok()
}
