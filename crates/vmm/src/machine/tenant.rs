//! The tenant of a machine, who shares the host's CPUs with others.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use super::blocking::blocking;
use super::error::MachineError;
use super::handle::Machine;
use super::record::Record;

impl Machine {
    /// Moves the machine to the control group of its tenant after this delay, if it still runs and its host has groups.
    /// The delay spares machines that end soon: the kernel takes milliseconds to move a process.
    pub fn join_tenant(
        &self,
        tenant: &str,
        after: Duration,
    ) -> impl Future<Output = Result<(), MachineError>> + Send + use<> {
        let (processes, dir, boundary) = (self.processes.clone(), self.dir.clone(), self.boundary.clone());
        let mut died = self.died.clone();
        let mut hasher = DefaultHasher::new();
        // Tenants of different homes may have the same name.
        (dir.path().parent(), tenant).hash(&mut hasher);
        let tenant = format!("{:016x}", hasher.finish());
        async move {
            if tokio::time::timeout(after, died.wait_for(Option::is_some)).await.is_ok() {
                return Ok(());
            }
            let joined = blocking(move || {
                let Ok(mut cgroup) = processes.cgroup.lock() else { return Ok(()) };
                let Some(current) = cgroup.as_ref().filter(|cgroup| !cgroup.is_of_tenant()) else { return Ok(()) };
                let pids = [processes.supervisor.pid(), processes.program.pid()];
                let moved = current.move_to_tenant(&tenant, &pids).map_err(MachineError::Process)?;
                *cgroup = Some(moved);
                drop(cgroup);
                Record::new(&processes, boundary).write(&dir)
            })
            .await;
            // A machine that has ended meanwhile has no processes to move.
            if joined.is_err() && tokio::time::timeout(after, died.wait_for(Option::is_some)).await.is_ok() {
                return Ok(());
            }
            joined
        }
    }
}
