//! A machine's use of the host, read from its processes and files.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use super::blocking::blocking;
use super::error::MachineError;
use super::handle::Machine;
use crate::jail::MEMORY;
use crate::memory::pages::{PAGE, push, written};
use crate::process::stat_fields;

/// The resources that QEMU has used so far, or holds now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    pub cpu: Duration,
    /// All resident pages, including those that it shares with other machines.
    pub rss_bytes: u64,
    /// Resident pages; a page that N processes share counts as 1/N.
    pub pss_bytes: u64,
    /// Blocks of the machine's own files.
    pub disk_bytes: u64,
}

/// The part of a machine's usage that is cheap to read, however much memory it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuickUsage {
    pub cpu: Duration,
    /// Resident pages that are no file's, such as those that the guest has written.
    pub anonymous_bytes: u64,
    pub disk_bytes: u64,
}

/// The pages of a guest's memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GuestPages {
    /// Pages of the files that it was restored from, which other machines may have mapped, too.
    pub shared: u64,
    /// Pages that it has written since.
    pub copied: u64,
}

impl Machine {
    /// How much of its guest memory is its own by now.
    pub async fn guest_pages(&self) -> Result<GuestPages, MachineError> {
        let pid = self.pid();
        blocking(move || guest_pages(pid, MEMORY).map_err(MachineError::Process)).await
    }

    /// The machine's current usage.
    pub async fn usage(&self) -> Result<Usage, MachineError> {
        let (pid, files) = (self.pid(), self.dir().files());
        blocking(move || read(pid, &files).map_err(MachineError::Process)).await
    }

    /// How long one of its threads, the one that waited longest, was ready to run while others had the host's CPUs. Zero if
    /// the kernel does not count it.
    pub fn waited_for_cpu(&self) -> Duration {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid())).into_iter().flatten().flatten();
        let waits = tasks.filter_map(|task| waited(&fs::read_to_string(task.path().join("schedstat")).ok()?));
        waits.max().unwrap_or_default()
    }

    /// The part of its usage that the kernel counts anyway. [`Self::usage`] makes it walk through all pages.
    pub async fn quick_usage(&self) -> Result<QuickUsage, MachineError> {
        let (pid, files) = (self.pid(), self.dir().files());
        blocking(move || read_quickly(pid, &files).map_err(MachineError::Process)).await
    }
}

/// The second number of a thread's `schedstat`, in nanoseconds.
fn waited(schedstat: &str) -> Option<Duration> {
    schedstat.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

fn read_quickly(pid: i32, files: &Path) -> io::Result<QuickUsage> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let anonymous_bytes = field_kib(&status, "RssAnon:") * 1024;
    Ok(QuickUsage { cpu: cpu(pid)?, anonymous_bytes, disk_bytes: disk_bytes(files)? })
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

/// Guest memory consists of the mappings of the file with this name, and of its layers, whose names begin with it.
fn guest_pages(pid: i32, memory: &str) -> io::Result<GuestPages> {
    let mut ranges = Vec::new();
    for line in fs::read_to_string(format!("/proc/{pid}/maps"))?.lines().filter(|line| line.contains(memory)) {
        let bounds = line.split(' ').next().and_then(|range| range.split_once('-'));
        let number = |text: &str| u64::from_str_radix(text, 16).map_err(io::Error::other);
        let (start, end) = bounds.ok_or(io::ErrorKind::InvalidData)?;
        // There may be thousands of adjacent mappings, which are read as one.
        push(&mut ranges, number(start)?..number(end)?);
    }
    let pagemap = File::open(format!("/proc/{pid}/pagemap"))?;
    let mut pages = GuestPages::default();
    for range in ranges {
        let bytes = range.end - range.start;
        let own: u64 = written(&pagemap, range.start, bytes)?.iter().map(|range| range.end - range.start).sum();
        pages.copied += own / PAGE;
        pages.shared += (bytes - own) / PAGE;
    }
    Ok(pages)
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

/// Follows no links, because the directory is the program's.
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
        let quick = read_quickly(std::process::id() as i32, dir.path()).unwrap();
        assert!((1..=usage.rss_bytes).contains(&quick.anonymous_bytes), "{quick:?}, {usage:?}");
        assert_eq!(quick.disk_bytes, usage.disk_bytes);
    }

    #[test]
    fn a_page_that_was_written_is_no_longer_shared() {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        let file = tempfile::Builder::new().prefix("guest-pages").tempfile().unwrap();
        file.as_file().set_len(16 * PAGE).unwrap();
        let flags = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a mapping of its own, at an address that the kernel chooses.
        let mapped =
            unsafe { mmap(std::ptr::null_mut(), 16 * PAGE as usize, flags, MapFlags::PRIVATE, &file, 0) }.unwrap();
        // SAFETY: the mapping is that long, is never unmapped, and has no other user.
        let bytes = unsafe { std::slice::from_raw_parts_mut(mapped.cast::<u8>(), 16 * PAGE as usize) };
        assert_eq!(bytes[0], 0);
        bytes[5 * PAGE as usize] = 1;
        bytes[9 * PAGE as usize] = 1;
        let pages = guest_pages(std::process::id() as i32, file.path().to_str().unwrap()).unwrap();
        assert_eq!(pages, GuestPages { shared: 14, copied: 2 });
    }
}
