//! What an engine can be told.

use std::path::PathBuf;
use std::time::Duration;

use sandling_vmm::accelerator::AcceleratorChoice;
use sandling_vmm::boundary::DiskRate;
use sandling_wire::Home;

use crate::host::available_memory_mib;
use crate::machine::Standbys;
use crate::network::NetworkConfig;

/// `off` disables the process cache: see [`EngineConfig::process_cache`].
pub const THAW_VARIABLE: &str = "SANDLING_THAW";

/// How many MiB each machine may read from the disk per second, and how many it may write; 0 for no limit.
pub const DISK_RATE_VARIABLE: &str = "SANDLING_VM_DISK_MIB_PER_SECOND";
/// How many read requests each machine may send to the disk per second, and how many write requests; 0 for no limit.
pub const DISK_REQUESTS_VARIABLE: &str = "SANDLING_VM_DISK_REQUESTS_PER_SECOND";
/// More than an ordinary sandbox ever uses, and a fraction of what an NVMe disk does.
const DISK_RATE_MIB: u64 = 512;
const DISK_REQUESTS: u64 = 20_000;

#[derive(Debug, Clone)]
pub struct EngineConfig {
    pub home: Home,
    pub accelerator: AcceleratorChoice,
    /// Standbys kept ready per template, once the template was first used.
    pub standbys: Standbys,
    /// Standbys give way, and none are made, while the host has less memory than this to spare.
    pub spare_memory_mib: u64,
    /// How much memory the host can still give, in MiB; `None` where that is unknown.
    pub available_memory_mib: fn() -> Option<u64>,
    /// The default time to live of a sandbox.
    pub default_ttl: Duration,
    /// A persistent sandbox hibernates after it was idle for so long; absent: never by itself.
    pub hibernate_after: Option<Duration>,
    /// Sandboxes of engines that died are taken over at the start; otherwise they are ended.
    pub takeover: bool,
    /// What sandboxes' networks are like, whatever their policies say.
    pub network: NetworkConfig,
    /// Resumes emulated machines from cached processes, with everything translated. Otherwise each is restored from device
    /// state, which is slower, but has memory addresses of its own.
    pub process_cache: bool,
    /// How fast each machine may use the host's disk, where control groups can limit that.
    pub disk_rate: DiskRate,
    /// The tag of this node in its fleet, which the ids of new sandboxes carry.
    pub node_tag: Option<u32>,
    /// The program that is executed to set up a machine's jail; it is given `__jail` as its first argument.
    pub launcher: PathBuf,
}

impl EngineConfig {
    /// The defaults. The launcher is this very program.
    pub fn new(home: Home) -> std::io::Result<Self> {
        Ok(Self {
            home,
            accelerator: AcceleratorChoice::Auto,
            standbys: Standbys::NONE,
            spare_memory_mib: 1024,
            available_memory_mib,
            default_ttl: Duration::from_secs(3600),
            hibernate_after: Some(Duration::from_secs(300)),
            takeover: false,
            network: NetworkConfig::default(),
            process_cache: std::env::var_os(THAW_VARIABLE).is_none_or(|wish| wish != "off"),
            disk_rate: disk_rate(|name| std::env::var(name).ok())?,
            node_tag: None,
            launcher: std::env::current_exe()?,
        })
    }
}

/// The disk rate that these variables ask for.
fn disk_rate(variable: impl Fn(&str) -> Option<String>) -> std::io::Result<DiskRate> {
    let rate = |name: &str, default: u64| match variable(name).filter(|text| !text.is_empty()) {
        None => Ok(default),
        Some(text) => text
            .trim()
            .parse::<u64>()
            .map_err(|_| std::io::Error::other(format!("{name} is {text:?}; use a whole number, or 0 for no limit"))),
    };
    let bytes = rate(DISK_RATE_VARIABLE, DISK_RATE_MIB)?.saturating_mul(1 << 20);
    let requests = rate(DISK_REQUESTS_VARIABLE, DISK_REQUESTS)?;
    let limit = |rate: u64| (rate > 0).then_some(rate);
    Ok(DiskRate { bytes_per_second: limit(bytes), requests_per_second: limit(requests) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operator_chooses_the_disk_rate() {
        let with = |mib: &str, requests: &str| {
            let variables = [(DISK_RATE_VARIABLE, mib.to_owned()), (DISK_REQUESTS_VARIABLE, requests.to_owned())];
            disk_rate(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone()))
        };
        assert_eq!(disk_rate(|_| None).unwrap().bytes_per_second, Some(512 << 20));
        let chosen = with("10", "0").unwrap();
        assert_eq!((chosen.bytes_per_second, chosen.requests_per_second), (Some(10 << 20), None));
        let error = with("fast", "").unwrap_err().to_string();
        assert!(error.contains("SANDLING_VM_DISK_MIB_PER_SECOND is \"fast\""), "{error}");
    }
}
