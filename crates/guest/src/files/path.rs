//! Checks of paths that the host sends.

use std::io;
use std::path::{Path, PathBuf};

use sandling_protocol::{Failure, FailureKind};

use crate::failure::{failure, io_failure};

/// The number of links that the kernel follows.
const MOST_LINKS: usize = 40;

/// A path must be absolute and have no NUL byte, where the kernel would cut it off.
pub fn check(path: &str) -> Result<&Path, Failure> {
    if !path.starts_with('/') {
        return Err(failure(FailureKind::Invalid, format!("{path:?} is not an absolute path")));
    }
    if path.contains('\0') {
        return Err(failure(FailureKind::Invalid, "a path cannot contain a NUL byte"));
    }
    Ok(Path::new(path))
}

/// Turns an error into a failure about a path.
pub fn about(path: &Path) -> impl Fn(io::Error) -> Failure + '_ {
    move |error| io_failure(path.display(), &error)
}

/// The file that a write to `path` reaches: the end of a chain of links, whether or not it exists.
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
    fn a_chain_of_links_is_followed_to_its_end_and_a_loop_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        symlink("two", dir.path().join("one")).unwrap();
        symlink("three", dir.path().join("two")).unwrap();
        assert_eq!(target(&dir.path().join("one")).unwrap(), dir.path().join("three"));
        symlink("round", dir.path().join("round")).unwrap();
        assert!(target(&dir.path().join("round")).is_err());
    }
}
