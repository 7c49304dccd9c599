//! How much memory and disk space the host can still give.

use std::path::Path;

/// `MemAvailable` in MiB; `None` where the kernel does not report it.
pub(crate) fn available_memory_mib() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib / 1024)
}

/// What a sandbox of this size takes. It shares its template's memory; what it really takes is what it writes. A quarter is
/// a guess on the safe side of what was measured for Python sessions.
pub(crate) fn memory_needed_mib(memory_mib: u32) -> u64 {
    u64::from(memory_mib) / 4 + 256
}

/// A file system in MiB.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Space {
    /// What an ordinary user can still write.
    pub(crate) available_mib: u64,
    pub(crate) total_mib: u64,
}

/// The file system of this path; `None` where the system does not report it.
pub(crate) fn disk_space(path: &Path) -> Option<Space> {
    let found = rustix::fs::statvfs(path).ok()?;
    let mib = |blocks: u64| blocks.saturating_mul(found.f_frsize) >> 20;
    Some(Space { available_mib: mib(found.f_bavail), total_mib: mib(found.f_blocks) })
}

/// What an ordinary user can still write to this file system, in MiB; `None` where the system does not report it.
pub(crate) fn available_space_mib(path: &Path) -> Option<u64> {
    disk_space(path).map(|space| space.available_mib)
}
