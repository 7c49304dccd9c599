//! What can go wrong with a machine.

use std::io;
use std::path::PathBuf;

use super::death::Death;
use crate::jail::LaunchError;
use crate::qmp::QmpError;

#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    #[error("cannot start the machine")]
    Launch(#[from] LaunchError),
    #[error("the machine would run without: {}", missing.join(", "))]
    BoundaryMissing { missing: Vec<&'static str> },
    #[error("the machine ended before it was ready ({death}){}{log}", if log.is_empty() { "" } else { ": " })]
    DiedEarly { death: Death, log: String },
    #[error("the machine did not accept a connection")]
    Connect(#[source] io::Error),
    #[error("QEMU did not do as it was told")]
    Qmp(#[from] QmpError),
    #[error("the saved machine could not be loaded: {status}")]
    NotLoaded { status: String },
    #[error("{name:?} is not a plain file name")]
    NotAFileName { name: String },
    #[error("the guest does not let go of the disk in slot {slot}")]
    NotReleased { slot: u32 },
    #[error("cannot {step} {}", path.display())]
    File { step: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot look at the machine's processes")]
    Process(#[source] io::Error),
    #[error("the machine's processes do not end")]
    WillNotEnd,
}
