//! Files of this machine that a sandbox's content goes into.
//!
//! Names and links that come out of a sandbox are a stranger's. Nothing is written outside the directory that was
//! named: no name leads up, no link in the way is followed, and links are made when all else is written.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use anyhow::bail;
use tempfile::NamedTempFile;

use crate::outcome::Failure;

/// A stranger's permissions: they neither let others write nor make programs that run as somebody else.
const MAY_HAVE: u32 = 0o755;

/// Where a path below `top` goes.
pub fn below(top: &Path, relative: &str) -> anyhow::Result<PathBuf> {
    let harmless = |component: Component| matches!(component, Component::Normal(_));
    let path = Path::new(relative);
    if relative.is_empty() || relative.contains('\0') || !path.components().all(harmless) {
        bail!("the sandbox has a file called {relative:?}, which cannot be copied");
    }
    Ok(top.join(path))
}

/// Makes a directory, unless it is there.
pub fn directory(path: &Path, mode: u32) -> anyhow::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(there) if there.is_dir() => return Ok(()),
        Ok(_) => bail!("{} is in the way: it is no directory", path.display()),
        Err(_) => fs::create_dir(path),
    }
    .and_then(|()| fs::set_permissions(path, Permissions::from_mode(mode & MAY_HAVE | 0o700)))
    .map_err(|error| unwritable(path, error))
}

/// A new file that takes its place when it is complete.
pub struct NewFile {
    file: NamedTempFile,
    path: PathBuf,
}

impl NewFile {
    pub fn beside(path: &Path) -> anyhow::Result<Self> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = NamedTempFile::new_in(parent).map_err(|error| unwritable(path, error))?;
        Ok(Self { file, path: path.to_owned() })
    }

    pub fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        io::Write::write_all(&mut self.file, bytes).map_err(|error| unwritable(&self.path, error))
    }

    /// Puts it in its place. A link that is there gives way; it is not followed.
    pub fn finish(self, mode: u32) -> anyhow::Result<()> {
        let permissions = Permissions::from_mode(mode & MAY_HAVE | 0o600);
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
    Failure::new(format!("{} cannot be written", path.display()), error).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leads_out() {
        let top = Path::new("/top");
        assert_eq!(below(top, "a/b c").unwrap(), Path::new("/top/a/b c"));
        for bad in ["", "..", "a/../../b", "/etc/passwd", "./a", "a\0b"] {
            assert!(below(top, bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_link_in_the_way_is_replaced_or_refused_but_never_followed() {
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
        assert_eq!(mode & 0o7777, 0o755, "nobody else may write it, and it runs as nobody else");
        link(&inside.join("file"), "/nowhere").unwrap();
        assert_eq!(fs::read_link(inside.join("file")).unwrap(), Path::new("/nowhere"));
    }

    #[test]
    fn a_file_that_is_not_finished_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = NewFile::beside(&dir.path().join("half")).unwrap();
        file.write(b"half").unwrap();
        drop(file);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
