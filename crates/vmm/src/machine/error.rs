//! The errors of machines.

use std::io;
use std::path::PathBuf;

use crate::jail::{Death, LaunchError};
use crate::qmp::QmpError;

#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    #[error("cannot start the machine")]
    Launch(#[from] LaunchError),
    #[error("the machine's jail lacks: {}; `sandling doctor` says how to get it", missing.join(", "))]
    BoundaryMissing { missing: Vec<&'static str> },
    #[error("the machine ended before it was ready ({death}){}{log}", if log.is_empty() { "" } else { ": " })]
    DiedEarly { death: Death, log: String },
    #[error("the machine did not accept a connection")]
    Connect(#[source] io::Error),
    #[error("a QEMU command failed")]
    Qmp(#[from] QmpError),
    #[error("the saved machine could not be loaded: {status}")]
    NotLoaded { status: String },
    #[error("{name:?} is not a plain file name")]
    NotAFileName { name: String },
    #[error("the guest did not release the disk in slot {slot}; unmount it in the guest first")]
    NotReleased { slot: u32 },
    #[error("the guest is still reading an upload; try again when the upload has ended")]
    StillLent,
    #[error("cannot {step} {}", path.display())]
    File { step: &'static str, path: PathBuf, source: io::Error },
    #[error("{} is damaged, or a newer version wrote it", path.display())]
    UnreadableRecord { path: PathBuf, source: serde_json::Error },
    #[error("cannot inspect the machine's processes")]
    Process(#[source] io::Error),
    #[error("the machine's processes did not end after they were killed")]
    WillNotEnd,
}
