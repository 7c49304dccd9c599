//! The handle on a machine.

use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::sync::watch;

use super::blocking::blocking;
use super::command_line::{CABLE_SOCKET, CONTROL_SOCKET};
use super::connect::connect;
use super::error::MachineError;
use super::lend::Lending;
use crate::boundary::Boundary;
use crate::jail::{Death, MachineDir, Processes, receive_cable};
use crate::qmp::Qmp;

/// The supervisor answers at once; if it takes this long, something is wrong.
const CABLE_LIMIT: Duration = Duration::from_secs(10);

/// A running machine. Dropping the handle leaves the machine running; see [`Machine::adopt`].
#[derive(Debug)]
pub struct Machine {
    pub(super) dir: MachineDir,
    pub(super) qmp: Qmp,
    pub(super) processes: Arc<Processes>,
    pub(super) boundary: Boundary,
    pub(super) died: watch::Receiver<Option<Death>>,
    pub(super) lending: Lending,
}

impl Machine {
    pub fn dir(&self) -> &MachineDir {
        &self.dir
    }

    /// QEMU's process id on the host.
    pub fn pid(&self) -> i32 {
        self.processes.program.pid()
    }

    pub fn supervisor_pid(&self) -> i32 {
        self.processes.supervisor.pid()
    }

    pub fn boundary(&self) -> &Boundary {
        &self.boundary
    }

    /// QEMU's own protocol, for commands that this crate does not wrap.
    pub fn qmp(&self) -> &Qmp {
        &self.qmp
    }

    /// Connects to the control port. QEMU serves one connection at a time.
    pub async fn connect_control(&self) -> Result<UnixStream, MachineError> {
        connect(&self.dir.supervisor(), CONTROL_SOCKET).await.map_err(MachineError::Connect)
    }

    /// The host's end of the guest's network card. One datagram is one Ethernet frame. Every caller gets the same
    /// socket, so only one should read from it.
    pub async fn connect_cable(&self) -> Result<UnixDatagram, MachineError> {
        let supervisor = connect(&self.dir.supervisor(), CABLE_SOCKET).await.map_err(MachineError::Connect)?;
        let take = move || {
            let supervisor = supervisor.into_std()?;
            supervisor.set_nonblocking(false)?;
            supervisor.set_read_timeout(Some(CABLE_LIMIT))?;
            receive_cable(&supervisor)
        };
        blocking(move || take().map_err(MachineError::Connect)).await
    }

    /// Holds `Some` from the moment the machine has ended.
    pub fn died(&self) -> watch::Receiver<Option<Death>> {
        self.died.clone()
    }
}
