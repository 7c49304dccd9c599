//! Paths as the host gives them.

use std::io;
use std::path::{Path, PathBuf};

use sandling_protocol::{Failure, FailureKind};

use crate::failure::{failure, io_failure};

/// As many links as the kernel follows.
const MOST_LINKS: usize = 40;

/// A path must say where it starts, and nothing that the kernel would cut off.
pub fn check(path: &str) -> Result<&Path, Failure> {
    if !path.starts_with('/') {
        return Err(failure(FailureKind::Invalid, format!("{path:?} is not an absolute path")));
    }
    if path.contains('\0') {
        return Err(failure(FailureKind::Invalid, "a path cannot contain a NUL byte"));
    }
    Ok(Path::new(path))
}

/// An error about a path, in words.
pub fn about(path: &Path) -> impl Fn(io::Error) -> Failure + '_ {
    move |error| io_failure(path.display(), &error)
}

/// Where writing to `path` ends up: the end of a chain of links, whether or not something is there.
pub fn target(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        match path.read_link() {
            Ok(link) => path = path.parent().unwrap_or(Path::new("/")).join(link),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn relative_paths_and_nul_bytes_are_refused() {
        assert!(check("/a").is_ok());
        for bad in ["", "a", "./a", "/a\0b"] {
            assert_eq!(check(bad).unwrap_err().kind, FailureKind::Invalid, "{bad:?}");
        }
    }

    #[test]
    fn a_chain_of_links_is_followed_to_its_end_and_a_circle_is_not() {
        let dir = tempfile::tempdir().unwrap();
        symlink("two", dir.path().join("one")).unwrap();
        symlink("three", dir.path().join("two")).unwrap();
        assert_eq!(target(&dir.path().join("one")).unwrap(), dir.path().join("three"));
        symlink("round", dir.path().join("round")).unwrap();
        assert!(target(&dir.path().join("round")).is_err());
    }
}
