//! What a machine uses of the host, read from its processes and files.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use super::error::MachineError;
use super::handle::Machine;
use crate::process::stat_fields;

/// What QEMU has used, and holds now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    pub cpu: Duration,
    /// All resident pages, also those it shares with other machines.
    pub rss_bytes: u64,
    /// Resident pages, a shared one counted in equal parts to those who share it.
    pub pss_bytes: u64,
    /// Blocks of the machine's own files.
    pub disk_bytes: u64,
}

impl Machine {
    /// What the machine uses now.
    pub async fn usage(&self) -> Result<Usage, MachineError> {
        let (pid, files) = (self.pid(), self.dir().files());
        let read = tokio::task::spawn_blocking(move || read(pid, &files));
        read.await.map_err(io::Error::other).flatten().map_err(MachineError::Process)
    }
}

fn read(pid: i32, files: &Path) -> io::Result<Usage> {
    let memory = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    Ok(Usage {
        cpu: cpu(pid)?,
        rss_bytes: field_kib(&memory, "Rss:") * 1024,
        pss_bytes: field_kib(&memory, "Pss:") * 1024,
        disk_bytes: disk_bytes(files)?,
    })
}

fn cpu(pid: i32) -> io::Result<Duration> {
    const USER_AND_SYSTEM: std::ops::Range<usize> = 11..13;
    let fields = stat_fields(pid)?;
    let ticks = fields.get(USER_AND_SYSTEM).unwrap_or_default().iter().filter_map(|field| field.parse::<u64>().ok());
    let per_second = rustix::param::clock_ticks_per_second();
    Ok(Duration::from_millis(ticks.sum::<u64>() * 1000 / per_second.max(1)))
}

fn field_kib(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()).and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Counted without following links: the directory is the program's.
fn disk_bytes(files: &Path) -> io::Result<u64> {
    let mut blocks = 0;
    for entry in fs::read_dir(files)? {
        // A file may go away while we count.
        blocks += entry?.metadata().map_or(0, |metadata| metadata.blocks());
    }
    Ok(blocks * 512)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_of_a_live_process_is_not_zero() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("disk"), vec![1; 100_000]).unwrap();
        std::os::unix::fs::symlink("/usr", dir.path().join("link")).unwrap();
        let usage = read(std::process::id() as i32, dir.path()).unwrap();
        assert!(usage.rss_bytes > 1 << 20 && usage.pss_bytes <= usage.rss_bytes, "{usage:?}");
        assert!((98_304..200_000).contains(&usage.disk_bytes), "{usage:?}");
    }
}
