//! Atomic and durable writes of files and directories.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    Now,
    /// The destination existed and was not changed; the new directory was removed.
    AlreadyThere,
}

/// Moves a finished directory to its destination, on the same file system: syncs everything in it to the disk, then
/// renames it. An existing destination stays, because its name stands for the same content.
pub fn publish_dir(temporary: &Path, destination: &Path) -> io::Result<Published> {
    sync_tree(temporary)?;
    let parent = parent_of(destination)?;
    fs::create_dir_all(parent)?;
    match fs::rename(temporary, destination) {
        Ok(()) => {
            File::open(parent)?.sync_all()?;
            Ok(Published::Now)
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists) => {
            fs::remove_dir_all(temporary)?;
            Ok(Published::AlreadyThere)
        }
        Err(error) => Err(error),
    }
}

/// Writes a file so that a reader, even after a power failure, finds the old content or the new.
pub(crate) fn write_json<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let parent = parent_of(path)?;
    let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(parent)?;
    serde_json::to_writer_pretty(&mut file, value)?;
    file.write_all(b"\n")?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    File::open(parent)?.sync_all()
}

fn sync_tree(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            sync_tree(&entry.path())?;
        } else if kind.is_file() {
            File::open(entry.path())?.sync_all()?;
        }
    }
    File::open(dir)?.sync_all()
}

fn parent_of(path: &Path) -> io::Result<&Path> {
    path.parent().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the root directory has no parent"))
}

/// A scratch directory, which is removed unless it is published.
pub(crate) fn scratch_dir(parent: &Path) -> io::Result<(tempfile::TempDir, PathBuf)> {
    let dir = tempfile::Builder::new().prefix("part-").tempdir_in(parent)?;
    let inner = dir.path().join("content");
    fs::create_dir(&inner)?;
    Ok((dir, inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_directory_is_complete_and_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("parts/one");
        for (content, expected) in [("first", Published::Now), ("second", Published::AlreadyThere)] {
            let (_guard, scratch) = scratch_dir(dir.path()).unwrap();
            fs::create_dir(scratch.join("sub")).unwrap();
            fs::write(scratch.join("sub/file"), content).unwrap();
            assert_eq!(publish_dir(&scratch, &place).unwrap(), expected);
            assert!(!scratch.exists());
        }
        assert_eq!(fs::read_to_string(place.join("sub/file")).unwrap(), "first");
    }

    #[test]
    fn an_unpublished_directory_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (guard, scratch) = scratch_dir(dir.path()).unwrap();
        fs::write(scratch.join("file"), "half").unwrap();
        drop(guard);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_is_replaced_and_no_temporary_file_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("value.json");
        write_json(&path, &1).unwrap();
        write_json(&path, &2).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "2\n");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
