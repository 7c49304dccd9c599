//! The limits of a control group, as values of the kernel's files.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

const CPU_PERIOD_US: u64 = 100_000;

/// What a group may use; `None` means unlimited.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupLimits {
    pub memory_bytes: Option<u64>,
    /// Memory that may be swapped out.
    #[serde(default)]
    pub swap_bytes: Option<u64>,
    /// Thousandths of one CPU.
    pub cpu_milli: Option<u32>,
    pub tasks: Option<u32>,
    #[serde(default)]
    pub disk: DiskRate,
}

/// How fast a group may read from the disk of its machine's directory, and how fast it may write there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskRate {
    pub bytes_per_second: Option<u64>,
    pub requests_per_second: Option<u64>,
}

/// A value for one file of a controller.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub file: &'static str,
    pub value: String,
    /// Without this one, the controller limits nothing. The others are extra, and some kernels lack their file.
    pub essential: bool,
}

fn essential(file: &'static str, value: String) -> Setting {
    Setting { file, value, essential: true }
}

/// The settings of a controller of version 2.
pub(super) fn v2(controller: &str, limits: &CgroupLimits, device: Option<&str>) -> Vec<Setting> {
    match controller {
        "memory" => {
            let memory = limits.memory_bytes.map(|bytes| essential("memory.max", bytes.to_string()));
            let swap = limits.swap_bytes.filter(|_| memory.is_some()).map(|bytes| bytes.to_string());
            let swap = swap.map(|value| Setting { file: "memory.swap.max", value, essential: false });
            memory.into_iter().chain(swap).collect()
        }
        "cpu" => {
            let quota = |milli| essential("cpu.max", format!("{} {CPU_PERIOD_US}", quota_us(milli)));
            limits.cpu_milli.map(quota).into_iter().collect()
        }
        "pids" => limits.tasks.map(|tasks| essential("pids.max", tasks.to_string())).into_iter().collect(),
        "io" => {
            let DiskRate { bytes_per_second, requests_per_second } = limits.disk;
            let keys = [("rbps", bytes_per_second), ("wbps", bytes_per_second)];
            let keys = keys.into_iter().chain([("riops", requests_per_second), ("wiops", requests_per_second)]);
            let rates: Vec<_> = keys.filter_map(|(key, rate)| Some(format!("{key}={}", rate?))).collect();
            let device = device.filter(|_| !rates.is_empty());
            device.map(|device| essential("io.max", format!("{device} {}", rates.join(" ")))).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// The settings of a controller of version 1. `blkio` limits reads and direct writes; the kernel writes cached pages on
/// behalf of no group.
pub(super) fn v1(controller: &str, limits: &CgroupLimits, device: Option<&str>) -> Vec<Setting> {
    match controller {
        "memory" => {
            let memory = limits.memory_bytes.map(|bytes| essential("memory.limit_in_bytes", bytes.to_string()));
            let both = limits.memory_bytes.zip(limits.swap_bytes).map(|(memory, swap)| memory.saturating_add(swap));
            let both = both.map(|bytes| bytes.to_string());
            let both = both.map(|value| Setting { file: "memory.memsw.limit_in_bytes", value, essential: false });
            memory.into_iter().chain(both).collect()
        }
        "cpu" => {
            let quota = |milli| essential("cpu.cfs_quota_us", quota_us(milli).to_string());
            limits.cpu_milli.map(quota).into_iter().collect()
        }
        "pids" => limits.tasks.map(|tasks| essential("pids.max", tasks.to_string())).into_iter().collect(),
        "blkio" => {
            let DiskRate { bytes_per_second, requests_per_second } = limits.disk;
            let rates = [
                ("blkio.throttle.read_bps_device", bytes_per_second),
                ("blkio.throttle.write_bps_device", bytes_per_second),
                ("blkio.throttle.read_iops_device", requests_per_second),
                ("blkio.throttle.write_iops_device", requests_per_second),
            ];
            let setting = |(file, rate): (_, Option<u64>)| Some(essential(file, format!("{} {}", device?, rate?)));
            rates.into_iter().filter_map(setting).collect()
        }
        _ => Vec::new(),
    }
}

/// The kernel refuses quotas below a millisecond.
fn quota_us(milli: u32) -> u64 {
    (u64::from(milli) * CPU_PERIOD_US / 1000).max(1000)
}

/// The disk of this file as `MAJOR:MINOR`; `None` if its file system is on no single disk (overlay, btrfs, tmpfs).
pub(super) fn disk_of(path: &Path) -> Option<String> {
    let device = fs::metadata(path).ok()?.dev();
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let described = Path::new("/sys/dev/block").join(&number).canonicalize().ok()?;
    // The kernel limits whole disks only.
    if !described.join("partition").exists() {
        return Some(number);
    }
    let whole = fs::read_to_string(described.parent()?.join("dev")).ok()?;
    Some(whole.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> CgroupLimits {
        let disk = DiskRate { bytes_per_second: Some(1000), requests_per_second: Some(50) };
        CgroupLimits { memory_bytes: Some(4096), swap_bytes: Some(1024), cpu_milli: Some(1500), tasks: Some(64), disk }
    }

    fn texts(settings: Vec<Setting>) -> Vec<String> {
        settings.into_iter().map(|setting| format!("{}: {}", setting.file, setting.value)).collect()
    }

    #[test]
    fn version_2_limits_memory_swap_and_the_disk() {
        assert_eq!(texts(v2("memory", &limits(), None)), ["memory.max: 4096", "memory.swap.max: 1024"]);
        assert_eq!(texts(v2("cpu", &limits(), None)), ["cpu.max: 150000 100000"]);
        let io = texts(v2("io", &limits(), Some("8:0")));
        assert_eq!(io, ["io.max: 8:0 rbps=1000 wbps=1000 riops=50 wiops=50"]);
    }

    #[test]
    fn version_1_counts_memory_and_swap_together() {
        let memory = texts(v1("memory", &limits(), None));
        assert_eq!(memory, ["memory.limit_in_bytes: 4096", "memory.memsw.limit_in_bytes: 5120"]);
        let blkio = texts(v1("blkio", &limits(), Some("254:0")));
        assert_eq!(blkio.len(), 4);
        assert_eq!(blkio[1], "blkio.throttle.write_bps_device: 254:0 1000");
    }

    #[test]
    fn without_a_disk_or_a_rate_the_disk_is_not_limited() {
        assert_eq!(v2("io", &limits(), None), []);
        assert_eq!(v1("blkio", &limits(), None), []);
        assert_eq!(v2("io", &CgroupLimits::default(), Some("8:0")), []);
        let only_bytes = DiskRate { bytes_per_second: Some(7), requests_per_second: None };
        let io = v2("io", &CgroupLimits { disk: only_bytes, ..CgroupLimits::default() }, Some("8:0"));
        assert_eq!(texts(io), ["io.max: 8:0 rbps=7 wbps=7"]);
    }

    #[test]
    fn a_directory_on_no_disk_has_none() {
        assert_eq!(disk_of(Path::new("/proc")), None);
        assert_eq!(disk_of(Path::new("/does/not/exist")), None);
    }
}
