//! Why a sandbox could not be made, used or changed.

use sandling_vmm::machine::MachineError;

use crate::lifecycle::Refused;
use crate::link::LinkError;
use crate::machine::{IdentifyError, MakeError, TemplateError};
use crate::model::{EndReason, TimelineError};
use crate::network::NetworkError;
use crate::snapshot::{RestoreError, SnapshotError};
use crate::store::StoreError;
use crate::volume::VolumeError;

#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error("{what} must be between {least} and {most}, not {value}")]
    OutOfRange { what: &'static str, value: u64, least: u64, most: u64 },
    #[error("the host has only {available_mib} MiB of memory left; end a sandbox first, or ask for a smaller one")]
    NoMemory { available_mib: u64 },
    #[error(
        "this needs {needed_mib} MiB of disk space, and the host has {available_mib} MiB left; ask for a smaller disk, \
         or end a sandbox first"
    )]
    NoSpace { needed_mib: u64, available_mib: u64 },
    #[error("the machine could not be made")]
    Make(#[from] MakeError),
    #[error(transparent)]
    Identify(#[from] IdentifyError),
    #[error("the name `{name}` belongs to {by}; end that sandbox first, or choose another name")]
    NameTaken { name: String, by: String },
    #[error("there is no such snapshot")]
    NoSnapshot,
    #[error(transparent)]
    Restore(#[from] RestoreError),
    #[error("a sandbox from a snapshot has the snapshot's size; leave vcpus, memory_mib and disk_mib out")]
    SizeOfSnapshot,
    #[error("the disk could not be grown")]
    GrowDisk(#[source] GrowError),
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error(transparent)]
    Volume(#[from] VolumeError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the engine is closing")]
    Closing,
}

#[derive(Debug, thiserror::Error)]
pub enum GrowError {
    #[error(transparent)]
    Machine(#[from] MachineError),
    #[error(transparent)]
    Guest(#[from] LinkError),
}

#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("the machine did not carry out the change")]
    Machine(#[source] MachineError),
    #[error("could not hibernate the sandbox")]
    Save(#[from] SnapshotError),
    #[error("could not wake the sandbox")]
    Wake(#[from] CreateError),
    #[error("could not write the change to the store, so nothing changed")]
    Store(#[from] StoreError),
}

/// Why a sandbox could not be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum UseError {
    #[error("the sandbox has ended: {0}")]
    Ended(EndReason),
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    Link(#[from] LinkError),
}

#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error(transparent)]
    Timeline(#[from] TimelineError),
    #[error(transparent)]
    Use(#[from] UseError),
    #[error("the checkpoint could not be made")]
    Save(#[from] SnapshotError),
    #[error("the checkpoint cannot be restored")]
    Restore(#[from] CreateError),
    #[error("the sandbox could not be changed")]
    Change(#[from] ChangeError),
}
