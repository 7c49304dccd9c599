//! What an engine can be told.

use std::path::PathBuf;
use std::time::Duration;

use sandling_vmm::accelerator::AcceleratorChoice;
use sandling_wire::Home;

use crate::host::available_memory_mib;
use crate::network::NetworkConfig;

/// `off` disables the process cache: see [`EngineConfig::process_cache`].
pub const THAW_VARIABLE: &str = "SANDLING_THAW";

#[derive(Debug, Clone)]
pub struct EngineConfig {
    pub home: Home,
    pub accelerator: AcceleratorChoice,
    /// Standbys kept ready per template, once the template was first used. 0: none.
    pub standbys: usize,
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
    /// The program that is executed to set up a machine's jail; it is given `__jail` as its first argument.
    pub launcher: PathBuf,
}

impl EngineConfig {
    /// The defaults. The launcher is this very program.
    pub fn new(home: Home) -> std::io::Result<Self> {
        Ok(Self {
            home,
            accelerator: AcceleratorChoice::Auto,
            standbys: 0,
            spare_memory_mib: 1024,
            available_memory_mib,
            default_ttl: Duration::from_secs(3600),
            hibernate_after: Some(Duration::from_secs(300)),
            takeover: false,
            network: NetworkConfig::default(),
            process_cache: std::env::var_os(THAW_VARIABLE).is_none_or(|wish| wish != "off"),
            launcher: std::env::current_exe()?,
        })
    }
}
