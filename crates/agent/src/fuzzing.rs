//! The parsers of untrusted bytes, for fuzzing. No part of the crate's API.

use crate::project::{Node, ProjectError, ProjectTree};

/// The paths and sizes of the files in a sandbox's archive.
pub fn read_archive(archive: &[u8]) -> Result<Vec<(String, usize)>, ProjectError> {
    let size = |node: Node| match node {
        Node::File { bytes, .. } => bytes.len(),
        Node::Link(target) => target.len(),
    };
    Ok(ProjectTree::of_archive(archive)?.0.into_iter().map(|(path, node)| (path, size(node))).collect())
}
