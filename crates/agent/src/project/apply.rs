//! Writes a diff into the project here.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use tempfile::NamedTempFile;

use super::diff::{Change, Diff};
use super::error::{Conflict, ProjectError};
use super::tree::Node;

impl Diff {
    /// All of it or, where something here is not as it was, nothing.
    pub fn apply(&self, root: &Path) -> Result<(), ProjectError> {
        for change in &self.changes {
            check(root, change)?;
        }
        for change in &self.changes {
            let path = root.join(&change.path);
            write(root, &path, change.after.as_ref()).map_err(|source| ProjectError::Write { path, source })?;
        }
        Ok(())
    }
}

fn check(root: &Path, change: &Change) -> Result<(), ProjectError> {
    let path = root.join(&change.path);
    if through_a_link(root, &path) || present(&path) != change.before {
        return Err(Conflict(path).into());
    }
    Ok(())
}

fn present(path: &Path) -> Option<Node> {
    let metadata = fs::symlink_metadata(path).ok()?;
    if metadata.is_symlink() {
        return Some(Node::Link(fs::read_link(path).ok()?.to_str()?.to_owned()));
    }
    let bytes = fs::read(path).ok()?;
    Some(Node::File { bytes, executable: metadata.permissions().mode() & 0o100 != 0 })
}

/// Whether a directory on the way is a link, which may lead anywhere.
fn through_a_link(root: &Path, path: &Path) -> bool {
    let above = path.ancestors().skip(1).take_while(|above| *above != root);
    above.into_iter().any(|above| fs::symlink_metadata(above).is_ok_and(|metadata| metadata.is_symlink()))
}

fn write(root: &Path, path: &Path, node: Option<&Node>) -> io::Result<()> {
    if through_a_link(root, path) {
        return Err(io::Error::other("a directory above it is a link"));
    }
    let parent = path.parent().unwrap_or(root);
    match node {
        None => {
            fs::remove_file(path)?;
            // Directories that are empty now were there for it; others stay.
            for above in path.ancestors().skip(1).take_while(|above| *above != root) {
                if fs::remove_dir(above).is_err() {
                    break;
                }
            }
            Ok(())
        }
        Some(Node::File { bytes, executable }) => {
            fs::create_dir_all(parent)?;
            let mut file = NamedTempFile::new_in(parent)?;
            file.write_all(bytes)?;
            file.as_file().set_permissions(Permissions::from_mode(if *executable { 0o755 } else { 0o644 }))?;
            file.persist(path).map(drop).map_err(|error| error.error)
        }
        Some(Node::Link(target)) => {
            fs::create_dir_all(parent)?;
            if fs::symlink_metadata(path).is_ok() {
                fs::remove_file(path)?;
            }
            symlink(target, path)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project::tree::ProjectTree;
    use ignore::gitignore::Gitignore;

    fn file(text: &str) -> Node {
        Node::File { bytes: text.as_bytes().to_vec(), executable: false }
    }

    #[test]
    fn a_diff_is_applied_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("old")).unwrap();
        fs::write(dir.path().join("a"), "1").unwrap();
        fs::write(dir.path().join("old/b"), "2").unwrap();
        let before = ProjectTree::read(dir.path()).unwrap();
        let mut after = before.clone();
        after.0.insert("a".to_owned(), file("changed"));
        after.0.insert("new/deep/c".to_owned(), file("3"));
        after.0.remove("old/b");
        let diff = Diff::between(&before, after, &Gitignore::empty());
        fs::write(dir.path().join("old/b"), "mine").unwrap();
        assert!(matches!(diff.apply(dir.path()), Err(ProjectError::Conflict(_))));
        assert_eq!(fs::read_to_string(dir.path().join("a")).unwrap(), "1");
        fs::write(dir.path().join("old/b"), "2").unwrap();
        diff.apply(dir.path()).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("a")).unwrap(), "changed");
        assert_eq!(fs::read_to_string(dir.path().join("new/deep/c")).unwrap(), "3");
        assert!(!dir.path().join("old").exists());
    }

    #[test]
    fn no_link_is_written_through() {
        let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let before = ProjectTree::read(dir.path()).unwrap();
        let mut after = before.clone();
        after.0.insert("sub/x".to_owned(), file("evil"));
        let diff = Diff::between(&before, after, &Gitignore::empty());
        symlink(outside.path(), dir.path().join("sub")).unwrap();
        assert!(diff.apply(dir.path()).is_err());
        assert!(!outside.path().join("x").exists());
    }
}
