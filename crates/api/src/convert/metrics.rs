//! Resource usage of sandboxes.

use jiff::Timestamp;
use sandling_engine::{SandboxInfo, SandboxUsage};
use sandling_protocol::Usage;
use sandling_service::{History, MetricPoint, SeriesInfo};
use sandling_wire::{GuestMetrics, MetricHistoryView, MetricPointView, SandboxMetrics};

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

into_wire!(struct Usage => GuestMetrics {
    memory_total_bytes, memory_available_bytes, disk_total_bytes, disk_available_bytes,
    processes, cpu_ms, uptime_ms
});

/// What the history of a sandbox says about its size.
pub(crate) fn series_info(info: &SandboxInfo) -> SeriesInfo {
    SeriesInfo {
        workspace: Some(info.workspace.clone()),
        cpus: info.vcpus,
        memory_total_bytes: u64::from(info.memory_mib) << 20,
        disk_total_bytes: u64::from(info.disk_mib) << 20,
    }
}

/// When a point's step begins.
pub(crate) fn point_time(point: &MetricPoint) -> Timestamp {
    Timestamp::from_second(point.time.cast_signed()).unwrap_or_default()
}

impl IntoWire for History {
    type Wire = MetricHistoryView;

    fn into_wire(self) -> MetricHistoryView {
        MetricHistoryView {
            step_seconds: self.step,
            cpus: self.info.cpus,
            memory_total_bytes: self.info.memory_total_bytes,
            disk_total_bytes: self.info.disk_total_bytes,
            points: self.points.into_iter().map(IntoWire::into_wire).collect(),
        }
    }
}

impl IntoWire for MetricPoint {
    type Wire = MetricPointView;

    fn into_wire(self) -> MetricPointView {
        MetricPointView {
            time: point_time(&self).to_string(),
            cpu_percent: self.cpu_percent,
            memory_bytes: self.memory_bytes,
            disk_bytes: self.disk_bytes,
            network_received_bytes_per_second: self.received_rate,
            network_sent_bytes_per_second: self.sent_rate,
        }
    }
}
