//! The handle on a machine.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::UnixStream;
use tokio::sync::watch;

use super::command_line::CONTROL_SOCKET;
use super::connect::connect;
use super::death::Death;
use super::error::MachineError;
use crate::boundary::Boundary;
use crate::jail::{MachineDir, Processes};
use crate::qmp::Qmp;

/// A running machine. Dropping the handle leaves the machine running; see [`Machine::adopt`].
#[derive(Debug)]
pub struct Machine {
    pub(super) dir: MachineDir,
    pub(super) qmp: Qmp,
    pub(super) processes: Arc<Processes>,
    pub(super) boundary: Boundary,
    pub(super) died: watch::Receiver<Option<Death>>,
}

impl Machine {
    pub fn dir(&self) -> &MachineDir {
        &self.dir
    }

    /// QEMU's process id on the host.
    pub fn pid(&self) -> i32 {
        self.processes.program.pid()
    }

    pub fn keeper_pid(&self) -> i32 {
        self.processes.keeper.pid()
    }

    pub fn boundary(&self) -> &Boundary {
        &self.boundary
    }

    /// QEMU's own protocol, for what this crate has no verb for.
    pub fn qmp(&self) -> &Qmp {
        &self.qmp
    }

    /// The host's end of the control port. The path may be too long for a socket address: see
    /// [`Machine::connect_control`].
    pub fn control_socket(&self) -> PathBuf {
        self.dir.keeper().join(CONTROL_SOCKET)
    }

    /// Connects to the control port. QEMU serves one connection at a time.
    pub async fn connect_control(&self) -> Result<UnixStream, MachineError> {
        connect(&self.dir.keeper(), CONTROL_SOCKET).await.map_err(MachineError::Connect)
    }

    /// Holds `Some` from the moment the machine has ended.
    pub fn died(&self) -> watch::Receiver<Option<Death>> {
        self.died.clone()
    }
}
