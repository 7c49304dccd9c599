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

impl Record {
    pub fn new(processes: &Processes, boundary: Boundary) -> Self {
        Self {
            qemu: processes.program.identity().clone(),
            supervisor: processes.supervisor.identity().clone(),
            cgroup: processes.cgroup(),
            boundary,
        }
    }

    pub fn write(&self, dir: &MachineDir) -> Result<(), MachineError> {
        let path = dir.record();
        let failed = |source| MachineError::File { step: "write", path: path.clone(), source };
        let text = serde_json::to_string(self).map_err(|error| failed(error.into()))?;
        MachineDir::replace(&path, &text).map_err(failed)
    }

    /// `None` if there is no record. Then no machine runs: none outlives its caller before it is recorded.
    pub fn read(dir: &MachineDir) -> Result<Option<Self>, MachineError> {
        match fs::read(dir.record()) {
            Ok(text) => match serde_json::from_slice(&text) {
                Ok(record) => Ok(Some(record)),
                Err(source) => Err(MachineError::UnreadableRecord { path: dir.record(), source }),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(MachineError::File { step: "read", path: dir.record(), source }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_the_first_version_started_can_be_taken_over() {
        let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1");
        let dir = tempfile::tempdir().unwrap();
        fs::copy(golden.join("machine.json"), dir.path().join("machine.json")).unwrap();
        let dir = MachineDir::new(dir.path());
        let written: serde_json::Value = serde_json::from_slice(&fs::read(dir.record()).unwrap()).unwrap();
        let record = Record::read(&dir).unwrap().unwrap();
        assert_eq!(serde_json::to_value(&record).unwrap(), written);
        let files = fs::read_to_string(golden.join("machine.files")).unwrap();
        for path in [dir.record(), dir.deadline(), dir.console_log(), dir.program_log()] {
            let path = path.strip_prefix(dir.path()).unwrap();
            assert!(files.lines().any(|line| std::path::Path::new(line) == std::path::Path::new("./").join(path)));
        }
    }

    #[test]
    fn a_map_of_the_first_version_is_read_and_written_the_same() {
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/v1/map.hex");
        let text = fs::read_to_string(golden).unwrap().split_whitespace().collect::<String>();
        let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
        let bytes: Vec<u8> = (0..text.len()).step_by(2).map(byte).collect();
        assert_eq!(crate::memory::MemoryMap::decode(&bytes).unwrap().encode(), bytes);
    }
}
