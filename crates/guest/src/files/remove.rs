//! Removing a directory tree.
//!
//! Not with the standard library, which recurses without a bound: a deep enough tree would overflow the stack, and the
//! end of PID 1 is the end of the machine.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;

/// Each level takes a descriptor. No path can be deeper.
const DEEPEST: usize = 2048;

/// A directory that is being emptied, and its name in its parent.
struct Level {
    fd: OwnedFd,
    name: CString,
}

/// Removes a directory and everything below it. Links are removed, not followed.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let top = openat(CWD, path, flags, Mode::empty())?;
    let mut levels = vec![Level { fd: top, name: CString::default() }];
    while let Some(level) = levels.last() {
        if let Some(name) = remove_entries(&level.fd)? {
            if levels.len() >= DEEPEST {
                return Err(io::Error::other("the tree is too deep"));
            }
            let fd = openat(&level.fd, &name, flags, Mode::empty())?;
            levels.push(Level { fd, name });
            continue;
        }
        let Some(Level { name, .. }) = levels.pop() else {
            break;
        };
        if let Some(parent) = levels.last() {
            gone(unlinkat(&parent.fd, &name, AtFlags::REMOVEDIR))?;
        }
    }
    std::fs::remove_dir(path)
}

/// Removes entries until it finds a directory that must be emptied first, and returns that.
fn remove_entries(fd: &OwnedFd) -> io::Result<Option<CString>> {
    for entry in Dir::read_from(fd)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        match unlinkat(fd, name, AtFlags::empty()) {
            Err(Errno::ISDIR) => match unlinkat(fd, name, AtFlags::REMOVEDIR) {
                Err(Errno::NOTEMPTY) => return Ok(Some(name.to_owned())),
                result => gone(result)?,
            },
            result => gone(result)?,
        }
    }
    Ok(None)
}

/// Another process may have removed it already.
fn gone(result: rustix::io::Result<()>) -> io::Result<()> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        result => Ok(result?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::mkdirat;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_tree_is_removed_with_its_links_but_not_their_targets() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        std::fs::create_dir_all(tree.join("a/b/c")).unwrap();
        std::fs::create_dir(dir.path().join("kept")).unwrap();
        std::fs::write(dir.path().join("kept/file"), "x").unwrap();
        for i in 0..300 {
            std::fs::write(tree.join(format!("a/{i}")), "").unwrap();
        }
        symlink(dir.path().join("kept"), tree.join("a/link")).unwrap();
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
        assert!(dir.path().join("kept/file").exists());
    }

    #[test]
    fn a_tree_that_is_too_deep_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut level = openat(CWD, dir.path(), flags, Mode::empty()).unwrap();
        for _ in 0..DEEPEST + 10 {
            mkdirat(&level, "d", Mode::RWXU).unwrap();
            level = openat(&level, "d", flags, Mode::empty()).unwrap();
        }
        assert!(remove_tree(&dir.path().join("d")).is_err());
        let removed = std::process::Command::new("rm").arg("-rf").arg(dir.path().join("d")).status().unwrap();
        assert!(removed.success());
    }
}
