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

/// Resource usage over time.
#[derive(Debug, Serialize, ToSchema)]
pub struct MetricHistoryView {
    /// Seconds between points: at least as many as were asked for. It is 5 or more within the last hour, and 60 or more
    /// for older points.
    pub step_seconds: u64,
    pub cpus: u32,
    pub memory_total_bytes: u64,
    pub disk_total_bytes: u64,
    /// The oldest first. There is none for a step in which nothing was measured.
    pub points: Vec<MetricPointView>,
}

/// Averages over one step.
#[derive(Debug, Serialize, ToSchema)]
pub struct MetricPointView {
    /// When the step begins.
    pub time: String,
    /// In percent of one CPU.
    pub cpu_percent: f64,
    /// Of a sandbox: its own memory plus its share of memory that it shares with others (PSS).
    pub memory_bytes: u64,
    pub disk_bytes: u64,
    pub network_received_bytes_per_second: u64,
    pub network_sent_bytes_per_second: u64,
}

/// Usage now, or over time if the request names a span or a step.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub enum MetricsAnswer {
    Now(SandboxMetrics),
    History(MetricHistoryView),
}
