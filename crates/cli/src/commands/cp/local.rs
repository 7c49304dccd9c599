//! Writes files from a sandbox to this machine.
//!
//! Names and links from a sandbox are untrusted. Nothing is written outside the target directory: names cannot contain
//! `..`, existing links are not followed, and symbolic links are created last.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use anyhow::bail;
use tempfile::NamedTempFile;

use crate::outcome::Failure;
use crate::save::temporary_beside;

/// Permission bits accepted from a sandbox: no write access for others, no setuid or setgid.
const ALLOWED_MODE: u32 = 0o755;

/// Joins an untrusted relative path to `top`.
pub fn below(top: &Path, relative: &str) -> anyhow::Result<PathBuf> {
    let is_normal = |component: Component| matches!(component, Component::Normal(_));
    let path = Path::new(relative);
    if relative.is_empty() || relative.contains('\0') || !path.components().all(is_normal) {
        bail!("cannot copy {relative:?} from the sandbox: the name is not a valid relative path");
    }
    Ok(top.join(path))
}

/// Creates a directory unless it exists.
pub fn directory(path: &Path, mode: u32) -> anyhow::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(there) if there.is_dir() => return Ok(()),
        Ok(_) => bail!("{} is in the way: it is not a directory", path.display()),
        Err(_) => fs::create_dir(path),
    }
    .and_then(|()| fs::set_permissions(path, Permissions::from_mode(mode & ALLOWED_MODE | 0o700)))
    .map_err(|error| unwritable(path, error))
}

/// A temporary file that is renamed to its path when it is complete.
pub struct NewFile {
    file: NamedTempFile,
    path: PathBuf,
}

impl NewFile {
    pub fn beside(path: &Path) -> anyhow::Result<Self> {
        let file = temporary_beside(path).map_err(|error| unwritable(path, error))?;
        Ok(Self { file, path: path.to_owned() })
    }

    pub fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        io::Write::write_all(&mut self.file, bytes).map_err(|error| unwritable(&self.path, error))
    }

    /// Renames the file to its path. An existing link is replaced, not followed.
    pub fn finish(self, mode: u32) -> anyhow::Result<()> {
        let permissions = Permissions::from_mode(mode & ALLOWED_MODE | 0o600);
        let set = self.file.as_file().set_permissions(permissions);
        set.and_then(|()| self.file.persist(&self.path).map_err(|error| error.error))
            .map(drop)
            .map_err(|error| unwritable(&self.path, error))
    }
}

pub fn link(path: &Path, target: &str) -> anyhow::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(there) if there.is_dir() => bail!("{} is in the way: it is a directory", path.display()),
        Ok(_) => fs::remove_file(path),
        Err(_) => Ok(()),
    }
    .and_then(|()| symlink(target, path))
    .map_err(|error| unwritable(path, error))
}

pub fn unwritable(path: &Path, error: io::Error) -> anyhow::Error {
    Failure::new(format!("cannot write {}", path.display()), error).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_escape_the_target_directory() {
        let top = Path::new("/top");
        assert_eq!(below(top, "a/b c").unwrap(), Path::new("/top/a/b c"));
        for bad in ["", "..", "a/../../b", "/etc/passwd", "./a", "a\0b"] {
            assert!(below(top, bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn existing_links_are_replaced_or_refused_but_never_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (outside, inside) = (dir.path().join("outside"), dir.path().join("inside"));
        fs::create_dir(&outside).unwrap();
        fs::create_dir(&inside).unwrap();
        fs::write(outside.join("kept"), "kept").unwrap();
        symlink(&outside, inside.join("dir")).unwrap();
        symlink(outside.join("kept"), inside.join("file")).unwrap();
        assert!(directory(&inside.join("dir"), 0o755).is_err());
        let mut file = NewFile::beside(&inside.join("file")).unwrap();
        file.write(b"new").unwrap();
        file.finish(0o4777).unwrap();
        assert_eq!(fs::read_to_string(outside.join("kept")).unwrap(), "kept");
        assert_eq!(fs::read_to_string(inside.join("file")).unwrap(), "new");
        let mode = fs::symlink_metadata(inside.join("file")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o755, "no write access for others, no setuid");
        link(&inside.join("file"), "/nowhere").unwrap();
        assert_eq!(fs::read_link(inside.join("file")).unwrap(), Path::new("/nowhere"));
    }

    #[test]
    fn an_unfinished_file_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = NewFile::beside(&dir.path().join("half")).unwrap();
        file.write(b"half").unwrap();
        drop(file);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
