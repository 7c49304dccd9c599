//! The identity that a guest gets after a restore.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The host sends it after every restore, before user code runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Identity {
    /// The host's wall clock, read as late as possible.
    pub unix_nanos: u64,
    /// Fresh randomness, at least 32 bytes, in hexadecimal. The host never uses it for another guest.
    pub entropy: String,
    pub hostname: String,
    /// 32 hexadecimal digits.
    pub machine_id: String,
    /// A UUID.
    pub boot_id: String,
    /// The environment of every command of this sandbox. Absent: it does not change.
    #[serde(default)]
    pub env: Option<BTreeMap<String, String>>,
    #[serde(default)]
    pub limits: Limits,
}

/// Limits within the guest, in addition to the machine's size.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Limits {
    /// The user's processes and threads, together.
    pub pids: Option<u32>,
}

/// What the guest has done about its identity. The host checks it and does not hand out a sandbox whose proof is
/// incomplete.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Proof {
    /// The guest's wall clock right after it was set.
    pub unix_nanos: u64,
    pub kernel_reseeded: bool,
    /// The number of live interpreters. `interpreters_reseeded` of them will reseed before they run code again.
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
