//! Starting a machine: jail, connect, load, check the boundary, and only then let it outlive the caller.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tracing::Instrument;

use super::blocking::blocking;
use super::command_line::{self, QMP_SOCKET};
use super::config::MachineConfig;
use super::connect::connect;
use super::control::{create_writable, write_deadline};
use super::death;
use super::error::MachineError;
use super::handle::Machine;
use super::lend::Lending;
use super::record::Record;
use crate::boundary::Boundary;
use crate::jail::{self, Death, Jailed, MachineDir};
use crate::qmp::{Event, Qmp, find_event};
use crate::trace::step;

/// QEMU is up in some 50 ms; on a host where many machines start at once it takes longer.
const GREETING_LIMIT: Duration = Duration::from_secs(60);
/// A cached process answers in milliseconds; if it does not, starting QEMU is faster than waiting.
const RESUMED_LIMIT: Duration = Duration::from_secs(3);
const LOAD_LIMIT: Duration = Duration::from_secs(60);
const STATUS_LIMIT: Duration = Duration::from_secs(30);

/// A closed connection and a dead process are one event, but the two are noticed at slightly different times.
const DEATH_PATIENCE: Duration = Duration::from_millis(500);
const LOG_TAIL_BYTES: usize = 2048;

impl Machine {
    /// Boots a machine. It runs when this returns.
    pub async fn boot(config: MachineConfig) -> Result<Self, MachineError> {
        let (starting, qmp) = Starting::until_it_answers(config).await?;
        starting.finish(qmp)
    }

    /// Starts a machine from saved memory and device state, or from a cached process. It is loaded, and stopped, when
    /// this returns.
    pub async fn restore(config: MachineConfig) -> Result<Self, MachineError> {
        let (starting, qmp) = Starting::until_it_answers(config).await?;
        starting.unless_it_dies(await_loaded(&qmp)).instrument(step!("machine.load")).await?;
        starting.finish(qmp)
    }
}

/// A machine that is not ready yet. It ends when this is dropped, or when the caller dies.
struct Starting {
    config: MachineConfig,
    jailed: Jailed,
    died: watch::Receiver<Option<Death>>,
}

impl Starting {
    async fn until_it_answers(config: MachineConfig) -> Result<(Self, Qmp), MachineError> {
        let starting = Self::launch(config).instrument(step!("machine.jail")).await?;
        let qmp = starting.unless_it_dies(starting.greet()).instrument(step!("machine.qemu")).await?;
        Ok((starting, qmp))
    }

    async fn launch(config: MachineConfig) -> Result<Self, MachineError> {
        let program = command_line::program(&config);
        let (dir, jail) = (config.dir.clone(), config.jail.clone());
        let deadline = config.deadline_ms;
        let has_memory_file = config.start.memory().is_none();
        let launched = blocking(move || {
            prepare(&dir, deadline, has_memory_file)?;
            jail::launch(&program, &dir, &jail).map_err(MachineError::Launch)
        });
        let jailed = launched.await?;
        let died = death::watch(jailed.processes().clone(), config.dir.clone());
        Ok(Self { config, jailed, died })
    }

    /// The socket was bound before QEMU ran, so the connection succeeds at once, and only the greeting takes time.
    async fn greet(&self) -> Result<Qmp, MachineError> {
        let stream = connect(&self.config.dir.supervisor(), QMP_SOCKET).await.map_err(MachineError::Connect)?;
        let limit = if self.config.start.cached().is_some() { RESUMED_LIMIT } else { GREETING_LIMIT };
        Ok(Qmp::negotiate(stream, limit).await?)
    }

    /// Does a step. If QEMU dies meanwhile, that is the error, with the end of its log.
    async fn unless_it_dies<T>(&self, step: impl Future<Output = Result<T, MachineError>>) -> Result<T, MachineError> {
        let mut died = self.died.clone();
        let error = tokio::select! {
            done = step => match done {
                Ok(value) => return Ok(value),
                Err(error) => error,
            },
            _ = died.wait_for(Option::is_some) => MachineError::WillNotEnd,
        };
        let death = tokio::time::timeout(DEATH_PATIENCE, died.wait_for(Option::is_some)).await;
        let death = death.ok().and_then(|death| death.ok().and_then(|death| death.clone()));
        Err(death.map_or(error, |death| MachineError::DiedEarly { death, log: program_log(&self.config.dir) }))
    }

    /// Records the machine before it lets it outlive the caller, so that a later caller can always find it.
    fn finish(mut self, qmp: Qmp) -> Result<Machine, MachineError> {
        let _step = step!("machine.record").entered();
        let boundary = self.boundary()?;
        let processes = self.jailed.processes().clone();
        Record::new(&processes, boundary.clone()).write(&self.config.dir)?;
        self.jailed.keep().map_err(MachineError::Process)?;
        let lending = Lending::default();
        Ok(Machine { dir: self.config.dir, qmp, processes, boundary, died: self.died, lending })
    }

    fn boundary(&self) -> Result<Boundary, MachineError> {
        let processes = self.jailed.processes();
        let accelerator = self.config.hardware.accelerator;
        let (pid, cgroup) = (processes.program.pid(), processes.cgroup());
        let boundary = Boundary::observe(pid, accelerator, self.jailed.landlock(), cgroup.as_ref())
            .map_err(MachineError::Process)?;
        let missing = boundary.missing(self.config.jail.user_namespace);
        if missing.is_empty() { Ok(boundary) } else { Err(MachineError::BoundaryMissing { missing }) }
    }
}

/// Waits for the event that device state is loaded, unless it was loaded before we could listen.
async fn await_loaded(qmp: &Qmp) -> Result<(), MachineError> {
    let events = qmp.events();
    let answer = qmp.execute("query-status", json!({}), STATUS_LIMIT).await?;
    if answer.get("status").and_then(Value::as_str) != Some("inmigrate") {
        return Ok(());
    }
    let loaded = find_event(events, |Event { name, data }| match data["status"].as_str() {
        Some("completed") if name == "MIGRATION" => Some(Ok(())),
        Some(status @ ("failed" | "cancelled")) if name == "MIGRATION" => Some(Err(not_loaded(status))),
        _ => None,
    });
    let loaded = tokio::time::timeout(LOAD_LIMIT, loaded).await.map_err(|_| not_loaded("timed out"))?;
    loaded.unwrap_or_else(|| Err(not_loaded("QEMU closed the connection")))
}

fn not_loaded(status: &str) -> MachineError {
    MachineError::NotLoaded { status: status.to_owned() }
}

fn prepare(dir: &MachineDir, deadline_ms: Option<u64>, has_memory_file: bool) -> Result<(), MachineError> {
    let failed = |source| MachineError::File { step: "create", path: dir.path().to_owned(), source };
    dir.create().map_err(failed)?;
    if has_memory_file {
        create_writable(&dir.files().join(MachineConfig::MEMORY)).map_err(failed)?;
    }
    write_deadline(dir, deadline_ms)
}

/// The end of QEMU's log, for an error message.
fn program_log(dir: &MachineDir) -> String {
    let log = std::fs::read(dir.program_log()).unwrap_or_default();
    let tail = &log[log.len().saturating_sub(LOG_TAIL_BYTES)..];
    String::from_utf8_lossy(tail).trim().to_owned()
}
