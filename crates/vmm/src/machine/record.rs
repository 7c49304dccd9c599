//! `machine.json`: what a later caller needs to adopt or end a machine that it did not start.

use std::fs;
use std::io;

use serde::{Deserialize, Serialize};

use super::error::MachineError;
use crate::boundary::Boundary;
use crate::cgroup::Cgroup;
use crate::jail::{MachineDir, Processes};
use crate::process::Identity;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Record {
    pub qemu: Identity,
    #[serde(rename = "keeper")]
    pub supervisor: Identity,
    pub cgroup: Option<Cgroup>,
    pub boundary: Boundary,
}

/// A machine whose caller has died.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    pub qemu_pid: i32,
    pub supervisor_pid: i32,
}

impl Record {
    pub fn new(processes: &Processes, boundary: Boundary) -> Self {
        Self {
            qemu: processes.program.identity().clone(),
            supervisor: processes.supervisor.identity().clone(),
            cgroup: processes.cgroup.clone(),
            boundary,
        }
    }

    pub fn write(&self, dir: &MachineDir) -> Result<(), MachineError> {
        let path = dir.record();
        let failed = |source| MachineError::File { step: "write", path: path.clone(), source };
        let text = serde_json::to_string(self).map_err(|error| failed(error.into()))?;
        MachineDir::replace(&path, &text).map_err(failed)
    }

    /// `None` if there is no valid record. Then no machine runs: none outlives its caller before it is recorded.
    pub fn read(dir: &MachineDir) -> Result<Option<Self>, MachineError> {
        match fs::read(dir.record()) {
            Ok(text) => Ok(serde_json::from_slice(&text).ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(MachineError::File { step: "read", path: dir.record(), source }),
        }
    }
}
