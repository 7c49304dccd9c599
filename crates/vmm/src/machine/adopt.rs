//! Adopting or ending machines that an earlier caller started.

use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::geteuid;

use super::command_line::QMP_SOCKET;
use super::connect::connect;
use super::control::{remove_sockets, write_deadline};
use super::death;
use super::error::MachineError;
use super::handle::Machine;
use super::lend::Lending;
use super::record::Record;
use crate::cgroup::Cgroup;
use crate::jail::{MachineDir, Processes, claim_user};
use crate::process::{Identity, Process};
use crate::qmp::Qmp;

/// QEMU serves one client at a time, and may still be busy with an earlier one's command: on a slow disk, flushing
/// takes long. If the earlier client is still connected, this limit ends the wait.
const GREETING_LIMIT: Duration = Duration::from_secs(60);
const END_LIMIT: Duration = Duration::from_secs(10);

impl Machine {
    /// Adopts the machine in this directory; `None` if none runs there.
    pub async fn adopt(dir: MachineDir) -> Result<Option<Self>, MachineError> {
        let Some(record) = Record::read(&dir)? else { return Ok(None) };
        let Some(processes) = open(&record)? else { return Ok(None) };
        let processes = Arc::new(processes);
        let stream = connect(&dir.supervisor(), QMP_SOCKET).await.map_err(MachineError::Connect)?;
        let qmp = Qmp::negotiate(stream, GREETING_LIMIT).await?;
        let died = death::watch(processes.clone(), dir.clone());
        let machine = Self { dir, qmp, processes, boundary: record.boundary, died, lending: Lending::default() };
        machine.take_back_leftover().await?;
        Ok(Some(machine))
    }
}

/// Whether the record of the machine in this directory can be read, if there is one.
pub fn check_record(dir: &MachineDir) -> Result<(), MachineError> {
    Record::read(dir).map(drop)
}

/// Whether the machine in this directory runs. If that cannot be found out, it may.
pub fn is_alive(dir: &MachineDir) -> bool {
    Record::read(dir).and_then(|record| record.map_or(Ok(false), |record| runs(&record))).unwrap_or(true)
}

fn runs(record: &Record) -> Result<bool, MachineError> {
    Ok(alive(&record.qemu)?.is_some() && alive(&record.supervisor)?.is_some())
}

/// Ends the machine that an earlier caller left running in this directory, and returns whether there was one.
pub async fn kill_leftover(dir: &MachineDir) -> Result<bool, MachineError> {
    let record = match Record::read(dir) {
        Err(MachineError::UnreadableRecord { .. }) => return end_without_record(dir).await,
        record => record?,
    };
    let Some(record) = record else {
        // Without a record no process runs, but an empty control group may be left.
        if let Ok(Some(cgroup)) = Cgroup::left_behind(dir.path()) {
            death::remove(&cgroup).await;
        }
        return Ok(false);
    };
    let mut found = false;
    // The supervisor last, so that it can record how QEMU ended.
    for identity in [&record.qemu, &record.supervisor] {
        let Some(process) = identity.open().map_err(MachineError::Process)? else { continue };
        found |= !process.has_ended();
        process.kill().map_err(MachineError::Process)?;
        let ended = tokio::time::timeout(END_LIMIT, process.ended()).await;
        ended.map_err(|_| MachineError::WillNotEnd)?.map_err(MachineError::Process)?;
        process.reap();
    }
    if let Some(cgroup) = &record.cgroup {
        death::remove(cgroup).await;
    }
    remove_sockets(dir);
    Ok(found)
}

/// Ends a machine whose processes are unknown: its supervisor ends it at a deadline that has passed.
async fn end_without_record(dir: &MachineDir) -> Result<bool, MachineError> {
    let found = connect(&dir.supervisor(), QMP_SOCKET).await.is_ok();
    if found {
        write_deadline(dir, Some(0))?;
        let reported = async {
            while !dir.exit_report().exists() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(END_LIMIT, reported).await.map_err(|_| MachineError::WillNotEnd)?;
    }
    if let Ok(Some(cgroup)) = Cgroup::left_behind(dir.path()) {
        death::remove(&cgroup).await;
    }
    remove_sockets(dir);
    Ok(found)
}

fn open(record: &Record) -> Result<Option<Processes>, MachineError> {
    let (Some(program), Some(supervisor)) = (alive(&record.qemu)?, alive(&record.supervisor)?) else { return Ok(None) };
    // Fails if the supervisor has the claim, as all have that this version started.
    let user = user_of(&program).and_then(|user| claim_user(user).ok().flatten());
    Ok(Some(Processes { program, supervisor, cgroup: Mutex::new(record.cgroup.clone()), _user: user }))
}

/// The user of a process. It is nobody else's if this process is root's.
fn user_of(process: &Process) -> Option<u32> {
    let owner = std::fs::metadata(format!("/proc/{}", process.pid())).ok()?.uid();
    geteuid().is_root().then_some(owner)
}

fn alive(identity: &Identity) -> Result<Option<Process>, MachineError> {
    let process = identity.open().map_err(MachineError::Process)?;
    Ok(process.filter(|process| !process.has_ended()))
}
