//! Notices at once that a machine has ended, and finds out why.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::cgroup::Cgroup;
use crate::jail::{Death, MachineDir, Processes};

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
    let Processes { program: qemu, supervisor, .. } = processes;
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
    if let Some(cgroup) = processes.cgroup() {
        remove(&cgroup).await;
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
    let report = fs::read(dir.exit_report()).ok().and_then(|text| serde_json::from_slice(&text).ok());
    report.unwrap_or(Death::SupervisorLost)
}
