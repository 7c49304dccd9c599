//! The preloaded library, carried inside this binary.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) const LIBRARY: &[u8] = include_bytes!(env!("SANDLING_PRELOAD"));

/// Puts the library into a directory, unless it is there, and returns its path.
pub fn place_library(directory: &Path) -> io::Result<PathBuf> {
    place(directory, "preload", ".so", LIBRARY)
}

/// Puts a file into a directory, unless it is there, and returns its path. Its name contains a hash of its content, so
/// a new version does not replace the file of running machines.
pub(crate) fn place(directory: &Path, name: &str, ending: &str, content: &[u8]) -> io::Result<PathBuf> {
    let path = directory.join(format!("{name}-{:016x}{ending}", fingerprint(content)));
    if fs::read(&path).is_ok_and(|found| found == content) {
        return Ok(path);
    }
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let fresh = directory.join(format!(".{name}-{}-{number}.new", std::process::id()));
    let mut file = fs::File::options().write(true).create(true).truncate(true).mode(0o644).open(&fresh)?;
    file.write_all(content)?;
    file.sync_all()?;
    // Independent of the umask: machines run as other users, and one of these files is a program.
    file.set_permissions(fs::Permissions::from_mode(0o755))?;
    fs::rename(&fresh, &path)?;
    Ok(path)
}

/// FNV-1a. It distinguishes versions and need not resist attackers: one who could write a forged file here could
/// replace the original as well.
pub(crate) fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_library_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = place_library(dir.path()).unwrap();
        fs::write(&path, b"short").unwrap();
        assert_eq!(place_library(dir.path()).unwrap(), path);
        assert_eq!(fs::read(path).unwrap(), LIBRARY);
    }
}
