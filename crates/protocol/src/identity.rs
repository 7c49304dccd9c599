//! What makes a restored guest itself.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Told to a guest after every restore, before anything of the user runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Identity {
    /// The host's wall clock, read as late as possible.
    pub unix_nanos: u64,
    /// Fresh randomness, at least 32 bytes, hexadecimal. Used for this guest and never again.
    pub entropy: String,
    pub hostname: String,
    /// 32 hexadecimal digits.
    pub machine_id: String,
    /// A UUID.
    pub boot_id: String,
    /// The environment of every command of this sandbox; absent: the one it has already.
    #[serde(default)]
    pub env: Option<BTreeMap<String, String>>,
    #[serde(default)]
    pub limits: Limits,
}

/// Limits within the guest, over and above the machine's own size.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Limits {
    /// Processes and threads of the user, all together.
    pub pids: Option<u32>,
}

/// What a guest says it has done. The host checks it and hands out no sandbox whose proof is not whole.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Proof {
    /// The guest's wall clock right after it was set.
    pub unix_nanos: u64,
    pub kernel_reseeded: bool,
    /// Live interpreters, and how many of them were told to reseed before their next line of code.
    pub interpreters: u32,
    pub interpreters_reseeded: u32,
    pub hostname: String,
}

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Usage {
    pub memory_total_bytes: u64,
    pub memory_available_bytes: u64,
    pub disk_total_bytes: u64,
    pub disk_available_bytes: u64,
    pub processes: u32,
    pub cpu_ms: u64,
    pub uptime_ms: u64,
}
