//! Resource usage of a sandbox.

use serde::Serialize;
use utoipa::ToSchema;

/// Usage of the machine as the host measures it, and of the guest as the guest reports it.
#[derive(Debug, Serialize, ToSchema)]
pub struct SandboxMetrics {
    /// CPU time of the whole machine.
    pub cpu_ms: u64,
    /// Its own memory plus its share of memory that it shares with others (PSS).
    pub memory_bytes: u64,
    pub host_rss_bytes: u64,
    /// The space that its disk takes on the host.
    pub disk_bytes: u64,
    pub network_received_bytes: u64,
    pub network_sent_bytes: u64,
    pub uptime_seconds: u64,
    /// The average since it started, in percent of one CPU.
    pub host_cpu_percent: f64,
    /// Absent while it is paused.
    pub guest: Option<GuestMetrics>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct GuestMetrics {
    pub memory_total_bytes: u64,
    pub memory_available_bytes: u64,
    pub disk_total_bytes: u64,
    pub disk_available_bytes: u64,
    pub processes: u32,
    pub cpu_ms: u64,
    pub uptime_ms: u64,
}
