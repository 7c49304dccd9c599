//! Limits of one command that the host enforces: CPU time and disk space.
//!
//! The guest reports what all of its programs use together. A command is therefore charged for what runs beside it in the
//! same sandbox. The host looks a few times per second, so a command can exceed its limit by what it does in that time.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sandling_protocol::{ExecState, ExitReason, Request, Response, Usage};

use super::activity::InUse;
use crate::machine::Live;

const LOOK_EVERY: Duration = Duration::from_millis(200);
const SIGKILL: i32 = 9;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunLimits {
    pub cpu: Option<Duration>,
    /// How much more of the disk may be in use than at the start.
    pub disk_bytes: Option<u64>,
}

impl RunLimits {
    pub fn is_none(self) -> bool {
        self == Self::default()
    }

    /// The limit that was exceeded between two moments.
    fn exceeded(self, before: &Usage, now: &Usage) -> Option<ExitReason> {
        let cpu = Duration::from_millis(now.cpu_ms.saturating_sub(before.cpu_ms));
        let disk = before.disk_available_bytes.saturating_sub(now.disk_available_bytes);
        match self {
            Self { cpu: Some(most), .. } if cpu > most => Some(ExitReason::CpuLimit),
            Self { disk_bytes: Some(most), .. } if disk > most => Some(ExitReason::DiskLimit),
            _ => None,
        }
    }
}

/// Which limit ended a command, once one has.
pub(super) type LimitHit = Arc<OnceLock<ExitReason>>;

/// Kills a command that exceeds its limits. Ends with the command, or with the machine.
pub(super) fn watch(live: Arc<Live>, in_use: InUse, exec: String, limits: RunLimits) -> LimitHit {
    let hit = LimitHit::default();
    let told = hit.clone();
    tokio::spawn(async move {
        let _in_use = in_use;
        let Some(before) = usage(&live).await else { return };
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let Some(now) = usage(&live).await else { return };
            if let Some(reason) = limits.exceeded(&before, &now) {
                // Before the signal, so that a caller that sees the end of the command also sees the reason.
                let _ = told.set(reason);
                let _ = live.link.call(Request::Signal { exec, signal: SIGKILL }).await;
                return;
            }
            if !is_running(&live, &exec).await {
                return;
            }
        }
    });
    hit
}

async fn usage(live: &Live) -> Option<Usage> {
    match live.link.call(Request::Usage).await {
        Ok(Response::Usage(usage)) => Some(usage),
        _ => None,
    }
}

async fn is_running(live: &Live, exec: &str) -> bool {
    match live.link.call(Request::ListExecs).await {
        Ok(Response::Execs { execs }) => {
            execs.iter().any(|info| info.id == exec && matches!(info.state, ExecState::Running))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_used_since_the_start_counts() {
        let usage = |cpu_ms, disk_available_bytes| Usage {
            memory_total_bytes: 1,
            memory_available_bytes: 1,
            disk_total_bytes: 1000,
            disk_available_bytes,
            processes: 1,
            cpu_ms,
            uptime_ms: 1,
        };
        let limits = RunLimits { cpu: Some(Duration::from_secs(1)), disk_bytes: Some(100) };
        let before = usage(5000, 900);
        assert_eq!(limits.exceeded(&before, &usage(6000, 800)), None);
        assert_eq!(limits.exceeded(&before, &usage(6001, 800)), Some(ExitReason::CpuLimit));
        assert_eq!(limits.exceeded(&before, &usage(5000, 799)), Some(ExitReason::DiskLimit));
        assert_eq!(limits.exceeded(&before, &usage(5000, 950)), None, "something was deleted");
        assert_eq!(RunLimits::default().exceeded(&before, &usage(99_999, 0)), None);
        assert!(RunLimits::default().is_none() && !limits.is_none());
    }
}
