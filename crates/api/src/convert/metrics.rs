//! Resource usage of sandboxes.

use jiff::Timestamp;
use sandling_engine::{SandboxInfo, SandboxUsage};
use sandling_protocol::Usage;
use sandling_wire::{GuestMetrics, SandboxMetrics};

use super::IntoWire;

pub(crate) fn sandbox_metrics(info: &SandboxInfo, usage: SandboxUsage) -> SandboxMetrics {
    let cpu_ms = usage.host.cpu.as_millis() as u64;
    let up = Timestamp::now().duration_since(info.created_at).as_secs_f64().max(0.001);
    SandboxMetrics {
        cpu_ms,
        memory_bytes: usage.host.pss_bytes,
        host_rss_bytes: usage.host.rss_bytes,
        disk_bytes: usage.host.disk_bytes,
        network_received_bytes: usage.network.received_bytes,
        network_sent_bytes: usage.network.sent_bytes,
        uptime_seconds: up as u64,
        host_cpu_percent: (cpu_ms as f64 / (up * 10.0) * 100.0).round() / 100.0,
        guest: usage.guest.map(IntoWire::into_wire),
    }
}

impl IntoWire for Usage {
    type Wire = GuestMetrics;

    fn into_wire(self) -> GuestMetrics {
        GuestMetrics {
            memory_total_bytes: self.memory_total_bytes,
            memory_available_bytes: self.memory_available_bytes,
            disk_total_bytes: self.disk_total_bytes,
            disk_available_bytes: self.disk_available_bytes,
            processes: self.processes,
            cpu_ms: self.cpu_ms,
            uptime_ms: self.uptime_ms,
        }
    }
}
