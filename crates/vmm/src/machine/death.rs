//! Notices at once that a machine has ended, and finds out why.

use std::fmt;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::cgroup::Cgroup;
use crate::jail::{ExitReport, MachineDir, Processes};

/// How long the supervisor may take to report QEMU's end.
const SUPERVISOR_LIMIT: Duration = Duration::from_secs(2);

/// The pauses between attempts to remove a group: the kernel refuses for a moment after the end of its last process.
const CGROUP_PAUSES: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(1),
    Duration::from_millis(5),
    Duration::from_millis(25),
    Duration::from_millis(100),
];

/// Why a machine ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Death {
    /// QEMU exited, with code 0 if the guest powered off, rebooted or panicked.
    Exited { code: i32 },
    /// A signal killed QEMU.
    Signalled { signal: i32 },
    /// The supervisor ended it at its deadline.
    Deadline,
    /// The supervisor was killed, and QEMU with it, so there is no report.
    #[serde(rename = "keeper_lost")]
    SupervisorLost,
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited { code } => write!(f, "QEMU exited with code {code}"),
            Self::Signalled { signal } => write!(f, "QEMU was killed by signal {signal}"),
            Self::Deadline => f.write_str("its deadline passed"),
            Self::SupervisorLost => f.write_str("its supervisor was killed"),
        }
    }
}

impl From<ExitReport> for Death {
    fn from(report: ExitReport) -> Self {
        match report {
            ExitReport::Exited { code } => Self::Exited { code },
            ExitReport::Signalled { signal } => Self::Signalled { signal },
            ExitReport::Deadline => Self::Deadline,
            ExitReport::Abandoned => Self::SupervisorLost,
        }
    }
}

/// Reports on the returned channel when all processes of the machine have ended.
pub(super) fn watch(processes: Arc<Processes>, dir: MachineDir) -> watch::Receiver<Option<Death>> {
    let (tell, died) = watch::channel(None);
    tokio::spawn(async move {
        let death = wait(&processes, &dir).await;
        // This fails if no receiver is left; the processes had to be reaped anyway.
        let _ = tell.send(Some(death));
    });
    died
}

/// Waits for both processes, reaps them, removes their control group, and reads the supervisor's report.
async fn wait(processes: &Processes, dir: &MachineDir) -> Death {
    let Processes { program: qemu, supervisor, cgroup } = processes;
    tokio::select! {
        _ = qemu.ended() => {}
        _ = supervisor.ended() => {}
    }
    if tokio::time::timeout(SUPERVISOR_LIMIT, supervisor.ended()).await.is_err() {
        let _ = supervisor.kill();
        let _ = tokio::time::timeout(SUPERVISOR_LIMIT, supervisor.ended()).await;
    }
    // Usually it has ended already: the kernel kills it with its supervisor.
    let _ = qemu.kill();
    let _ = tokio::time::timeout(SUPERVISOR_LIMIT, qemu.ended()).await;
    supervisor.reap();
    if let Some(cgroup) = cgroup {
        remove(cgroup).await;
    }
    read_report(dir)
}

pub(super) async fn remove(cgroup: &Cgroup) {
    for pause in CGROUP_PAUSES {
        tokio::time::sleep(pause).await;
        if cgroup.remove().is_ok() {
            return;
        }
    }
    tracing::warn!(directories = ?cgroup.directories, "cannot remove a control group");
}

fn read_report(dir: &MachineDir) -> Death {
    let report = fs::read(dir.exit_report()).ok().and_then(|text| serde_json::from_slice::<ExitReport>(&text).ok());
    report.map_or(Death::SupervisorLost, Death::from)
}
