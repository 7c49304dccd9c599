//! Applies a diff to the project on this host.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use tempfile::NamedTempFile;

use super::diff::{Change, Diff};
use super::error::{Conflict, ProjectError};
use super::tree::Node;

impl Diff {
    /// Applies all changes, or none if a file has changed here since or cannot be written.
    pub fn apply(&self, root: &Path) -> Result<(), ProjectError> {
        for change in &self.changes {
            check(root, change)?;
        }
        // Deletions come first, because a file may replace a directory, and a directory a file.
        let (gone, made): (Vec<&Change>, Vec<&Change>) = self.changes.iter().partition(|change| change.after.is_none());
        let mut done = Vec::new();
        for change in gone.into_iter().chain(made) {
            let path = root.join(&change.path);
            if let Err(source) = write(root, &path, change.after.as_ref()) {
                roll_back(root, &done);
                return Err(ProjectError::Write { path, source });
            }
            done.push(change);
        }
        Ok(())
    }
}

/// Restores the earlier content. What cannot be restored stays as it is; its earlier content is in the diff that was
/// shown.
fn roll_back(root: &Path, done: &[&Change]) {
    for change in done.iter().rev() {
        let _ = write(root, &root.join(&change.path), change.before.as_ref());
    }
}

fn check(root: &Path, change: &Change) -> Result<(), ProjectError> {
    let path = root.join(&change.path);
    if through_a_link(root, &path) || Node::at(&path).unwrap_or_default() != change.before {
        return Err(Conflict(path).into());
    }
    Ok(())
}

/// Whether a directory on the path is a link, which may lead anywhere.
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
            // Removes directories that are empty now. Others stay.
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
            file.as_file().set_permissions(Permissions::from_mode(mode(path, *executable)))?;
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

/// The mode of a file. An existing file stays as private as it is.
fn mode(path: &Path, executable: bool) -> u32 {
    let before = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file);
    let readable = before.map_or(0o644, |metadata| metadata.permissions().mode() & 0o666);
    // Users that may read the file may also execute it.
    if executable { readable | (readable & 0o444) >> 2 } else { readable }
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
    fn a_failure_midway_is_rolled_back() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), "1").unwrap();
        fs::write(dir.path().join("gone"), "2").unwrap();
        let before = ProjectTree::read(dir.path()).unwrap();
        let after =
            ProjectTree([("a", "changed"), ("b/c", "3"), ("z", "4")].map(|(n, t)| (n.to_owned(), file(t))).into());
        let diff = Diff::between(&before, after, &Gitignore::empty());
        // The directory does no harm until a file is to replace it.
        fs::create_dir(dir.path().join("z")).unwrap();
        assert!(matches!(diff.apply(dir.path()), Err(ProjectError::Write { .. })));
        assert_eq!(ProjectTree::read(dir.path()).unwrap(), before);
        assert!(!dir.path().join("b").exists());
    }

    #[test]
    fn files_and_directories_can_replace_each_other() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::write(dir.path().join("a/x"), "1").unwrap();
        fs::write(dir.path().join("b"), "2").unwrap();
        let before = ProjectTree::read(dir.path()).unwrap();
        let after = ProjectTree([("a", "file"), ("b/y", "deep")].map(|(n, t)| (n.to_owned(), file(t))).into());
        Diff::between(&before, after.clone(), &Gitignore::empty()).apply(dir.path()).unwrap();
        assert_eq!(ProjectTree::read(dir.path()).unwrap(), after);
    }

    #[test]
    fn a_private_file_stays_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        fs::write(&path, "1").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let before = ProjectTree::read(dir.path()).unwrap();
        let after = [("a".to_owned(), Node::File { bytes: b"2".to_vec(), executable: true })];
        Diff::between(&before, ProjectTree(after.into()), &Gitignore::empty()).apply(dir.path()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn files_are_never_written_through_links() {
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
