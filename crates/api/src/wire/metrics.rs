//! What a sandbox uses.

use jiff::Timestamp;
use sandling_engine::{SandboxInfo, SandboxUsage};
use sandling_protocol::Usage;
use serde::Serialize;
use utoipa::ToSchema;

/// Figures of the machine as the host sees it, and of the guest as it says itself.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SandboxMetrics {
    /// CPU time of the whole machine.
    cpu_ms: u64,
    /// Memory that is its own, and its share of what it has in common with others (Pss).
    memory_bytes: u64,
    host_rss_bytes: u64,
    /// What its disk takes on the host.
    disk_bytes: u64,
    network_received_bytes: u64,
    network_sent_bytes: u64,
    uptime_seconds: u64,
    /// Since it began, in percent of one CPU.
    host_cpu_percent: f64,
    /// Absent while it is paused.
    guest: Option<GuestMetrics>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GuestMetrics {
    memory_total_bytes: u64,
    memory_available_bytes: u64,
    disk_total_bytes: u64,
    disk_available_bytes: u64,
    processes: u32,
    cpu_ms: u64,
    uptime_ms: u64,
}

impl SandboxMetrics {
    pub(crate) fn new(info: &SandboxInfo, usage: SandboxUsage) -> Self {
        let cpu_ms = usage.host.cpu.as_millis() as u64;
        let up = Timestamp::now().duration_since(info.created_at).as_secs_f64().max(0.001);
        Self {
            cpu_ms,
            memory_bytes: usage.host.pss_bytes,
            host_rss_bytes: usage.host.rss_bytes,
            disk_bytes: usage.host.disk_bytes,
            network_received_bytes: usage.network.received_bytes,
            network_sent_bytes: usage.network.sent_bytes,
            uptime_seconds: up as u64,
            host_cpu_percent: (cpu_ms as f64 / (up * 10.0) * 100.0).round() / 100.0,
            guest: usage.guest.map(GuestMetrics::from),
        }
    }
}

impl From<Usage> for GuestMetrics {
    fn from(usage: Usage) -> Self {
        Self {
            memory_total_bytes: usage.memory_total_bytes,
            memory_available_bytes: usage.memory_available_bytes,
            disk_total_bytes: usage.disk_total_bytes,
            disk_available_bytes: usage.disk_available_bytes,
            processes: usage.processes,
            cpu_ms: usage.cpu_ms,
            uptime_ms: usage.uptime_ms,
        }
    }
}
