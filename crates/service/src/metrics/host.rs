//! Use of the host's resources, read from `/proc`.

use std::io;
use std::path::Path;

/// The host's resources and what was used of them so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostResources {
    pub cpus: u32,
    pub memory_total_bytes: u64,
    pub memory_available_bytes: u64,
    /// Of the file system that holds the home directory.
    pub disk_total_bytes: u64,
    pub disk_available_bytes: u64,
    /// CPU time of all processes since the host booted.
    pub(super) cpu_ms: u64,
    /// On all network interfaces but loopback, since the host booted.
    pub(super) received_bytes: u64,
    pub(super) sent_bytes: u64,
}

impl HostResources {
    pub fn read(home: &Path) -> io::Result<Self> {
        let file = |name: &str| std::fs::read_to_string(Path::new("/proc").join(name));
        let memory = file("meminfo")?;
        let disk = rustix::fs::statvfs(home)?;
        let (received_bytes, sent_bytes) = traffic(&file("net/dev")?);
        Ok(Self {
            cpus: std::thread::available_parallelism().map_or(1, |count| count.get() as u32),
            memory_total_bytes: memory_bytes(&memory, "MemTotal:"),
            memory_available_bytes: memory_bytes(&memory, "MemAvailable:"),
            disk_total_bytes: disk.f_blocks.saturating_mul(disk.f_frsize),
            disk_available_bytes: disk.f_bavail.saturating_mul(disk.f_frsize),
            cpu_ms: busy_ms(&file("stat")?, rustix::param::clock_ticks_per_second()),
            received_bytes,
            sent_bytes,
        })
    }
}

/// A line of `/proc/meminfo`, which counts in KiB; 0 if it is missing.
fn memory_bytes(meminfo: &str, name: &str) -> u64 {
    let value = meminfo.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    value.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or_default() * 1024
}

/// The time that all CPUs together were neither idle nor waiting for a disk, from the first line of `/proc/stat`.
fn busy_ms(stat: &str, ticks_per_second: u64) -> u64 {
    const IDLE: [usize; 2] = [3, 4];
    /// Later fields count time of guests, which is part of the first ones.
    const COUNTED: usize = 8;
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu ")).unwrap_or_default();
    let fields = line.split_whitespace().take(COUNTED).enumerate().filter(|(index, _)| !IDLE.contains(index));
    let ticks: u64 = fields.filter_map(|(_, field)| field.parse::<u64>().ok()).sum();
    ticks * 1000 / ticks_per_second.max(1)
}

/// Bytes received and sent, from `/proc/net/dev`.
fn traffic(devices: &str) -> (u64, u64) {
    let interfaces = devices.lines().filter_map(|line| line.split_once(':')).filter(|(name, _)| name.trim() != "lo");
    interfaces.fold((0, 0), |(received, sent), (_, fields)| {
        let fields: Vec<u64> = fields.split_whitespace().filter_map(|field| field.parse().ok()).collect();
        let field = |index: usize| fields.get(index).copied().unwrap_or_default();
        (received + field(0), sent + field(8))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lines_are_read() {
        let meminfo = "MemTotal:       24519012 kB\nMemFree:         1234 kB\nMemAvailable:   2 kB\n";
        assert_eq!(memory_bytes(meminfo, "MemAvailable:"), 2048);
        assert_eq!(memory_bytes(meminfo, "MemTotal:"), 24_519_012 * 1024);
        assert_eq!(memory_bytes(meminfo, "Nothing:"), 0);
        assert_eq!(busy_ms("cpu  10 2 3 1000 500 1 2 4 10 0\ncpu0 9 9 9 9\n", 100), 220);
        let devices = "Inter-|   Receive\n face |bytes\n    lo: 9 9 0 0 0 0 0 0 9 9\n  eth0: 100 1 0 0 0 0 0 0 30 1\n\
                       eth1:5 1 0 0 0 0 0 0 6 1 0\n";
        assert_eq!(traffic(devices), (105, 36));
    }

    #[test]
    fn this_host_has_resources() {
        let now = HostResources::read(Path::new("/")).unwrap();
        assert!(now.cpus > 0 && now.cpu_ms > 0, "{now:?}");
        assert!(now.memory_total_bytes >= now.memory_available_bytes && now.memory_available_bytes > 0, "{now:?}");
        assert!(now.disk_total_bytes >= now.disk_available_bytes, "{now:?}");
    }
}
