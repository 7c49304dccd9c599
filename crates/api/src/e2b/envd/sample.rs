//! The current resource usage of a sandbox, measured inside it.

use std::time::Duration;

use jiff::Timestamp;
use sandling_engine::{Sandbox, SandboxUsage};
use sandling_protocol::Usage;
use serde_json::{Value, json};

use super::paths::lines;
use crate::e2b::place::{Place, entered};
use crate::prelude::*;

/// The interval over which CPU usage is measured.
const BETWEEN: Duration = Duration::from_millis(100);

pub(in crate::e2b) struct Sample {
    at: Timestamp,
    vcpus: u32,
    cpu_used_percent: f64,
    usage: Usage,
    cache_bytes: u64,
}

impl Sample {
    pub(in crate::e2b) async fn take(sandbox: &Arc<Sandbox>) -> Result<Self, ApiError> {
        let before = guest(sandbox.usage().await?)?;
        tokio::time::sleep(BETWEEN).await;
        let usage = guest(sandbox.usage().await?)?;
        let vcpus = sandbox.info().vcpus;
        let passed = usage.uptime_ms.saturating_sub(before.uptime_ms).max(1) as f64;
        let worked = usage.cpu_ms.saturating_sub(before.cpu_ms) as f64;
        let percent = (worked / passed * 100.0).clamp(0.0, f64::from(vcpus) * 100.0);
        let cache_bytes = cached(&lines(sandbox, "/proc/meminfo").await?);
        Ok(Self { at: Timestamp::now(), vcpus, cpu_used_percent: percent, usage, cache_bytes })
    }

    /// In the control plane's format.
    pub(in crate::e2b) fn of_sandbox(&self) -> Value {
        json!({
            "timestamp": self.at.to_string(),
            "timestampUnix": self.at.as_second(),
            "cpuCount": self.vcpus,
            "cpuUsedPct": self.cpu_used_percent,
            "memUsed": self.memory_used(),
            "memTotal": self.usage.memory_total_bytes,
            "memCache": self.cache_bytes,
            "diskUsed": self.disk_used(),
            "diskTotal": self.usage.disk_total_bytes,
        })
    }

    /// In the format of E2B's agent.
    fn of_agent(&self) -> Value {
        json!({
            "ts": self.at.as_second(),
            "cpu_count": self.vcpus,
            "cpu_used_pct": self.cpu_used_percent,
            "mem_total": self.usage.memory_total_bytes,
            "mem_used": self.memory_used(),
            "mem_cache": self.cache_bytes,
            "mem_total_mib": self.usage.memory_total_bytes >> 20,
            "mem_used_mib": self.memory_used() >> 20,
            "disk_used": self.disk_used(),
            "disk_total": self.usage.disk_total_bytes,
        })
    }

    fn memory_used(&self) -> u64 {
        self.usage.memory_total_bytes.saturating_sub(self.usage.memory_available_bytes)
    }

    fn disk_used(&self) -> u64 {
        self.usage.disk_total_bytes.saturating_sub(self.usage.disk_available_bytes)
    }
}

fn guest(usage: SandboxUsage) -> Result<Usage, ApiError> {
    usage.guest.ok_or_else(|| ApiError::conflict("sandbox_paused", "the sandbox stands still"))
}

fn cached(meminfo: &[String]) -> u64 {
    let line = meminfo.iter().find_map(|line| line.strip_prefix("Cached:"));
    let kib: Option<u64> = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    kib.unwrap_or_default().saturating_mul(1024)
}

/// Handles the agent's metrics route.
pub(in crate::e2b) async fn metrics(app: &App, place: &Place, headers: &HeaderMap) -> Result<Response, ApiError> {
    let (sandbox, _call) = entered(app, place, headers).await?;
    Ok(Json(Sample::take(&sandbox).await?.of_agent()).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_read_from_the_guests_own_words() {
        let lines = ["MemTotal: 1 kB", "Cached:          12 kB", "SwapCached: 7 kB"].map(str::to_owned);
        assert_eq!(cached(&lines), 12 * 1024);
        assert_eq!(cached(&[]), 0);
    }
}
