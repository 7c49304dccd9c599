//! The check for disk space before a build, because a full disk affects everything on it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::statvfs;

use crate::error::{BuildError, io_at};

/// Space that a build leaves free.
const MARGIN: u64 = 256 << 20;

/// Checks that each directory's file system has room for what will be written. Directories may share a file system.
pub(crate) fn check(needs: &[(&Path, u64)]) -> Result<(), BuildError> {
    for (at, _) in needs {
        let device = device(at)?;
        let mut needed = MARGIN;
        for (other, bytes) in needs {
            if self::device(other)? == device {
                needed += bytes;
            }
        }
        let free = free_bytes(at)?;
        if free < needed {
            let (needed_mib, free_mib) = (needed.div_ceil(1 << 20), free >> 20);
            return Err(BuildError::NoSpace { at: at.to_path_buf(), needed_mib, free_mib });
        }
    }
    Ok(())
}

fn device(at: &Path) -> Result<u64, BuildError> {
    Ok(fs::metadata(at).map_err(io_at("look at", at))?.dev())
}

fn free_bytes(at: &Path) -> Result<u64, BuildError> {
    let stat = statvfs(at).map_err(|error| io_at("look at", at)(error.into()))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_space_is_reported_with_both_figures() {
        let dir = tempfile::tempdir().unwrap();
        check(&[(dir.path(), 0)]).unwrap();
        let half = free_bytes(dir.path()).unwrap() / 2 + (1 << 20);
        let error = check(&[(dir.path(), half), (dir.path(), half)]).unwrap_err();
        let BuildError::NoSpace { needed_mib, free_mib, .. } = error else { panic!("{error}") };
        assert!(needed_mib > free_mib);
    }
}
