//! How much room a file system still has.

use std::path::Path;

/// What an ordinary user could still write there, in MiB; nothing where the system does not say.
pub fn available_mib(path: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(path).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize) >> 20)
}
