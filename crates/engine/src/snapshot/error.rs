//! Why a sandbox could not be saved.

use std::io;

use sandling_vmm::disk::DiskError;
use sandling_vmm::machine::FreezeError;
use sandling_vmm::memory::MapError;

use super::restore::RestoreError;
use crate::lifecycle::Refused;
use crate::link::LinkError;
use crate::store::StoreError;
use crate::volume::VolumeError;

#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("the snapshot's files cannot be written; is the disk full?")]
    Files(#[from] io::Error),
    #[error("its disk could not be made")]
    Disk(#[from] DiskError),
    #[error(transparent)]
    Freeze(#[from] FreezeError),
    #[error("the guest did not write its files to the disk; save it with its memory instead")]
    NotWrittenOut(#[source] LinkError),
    #[error("the sandbox could not boot from its disk again; save it with its memory instead")]
    NoKernel(#[from] RestoreError),
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("a file that the machine left is not what it should be")]
    Hostile,
    #[error("the snapshot it stands on is damaged")]
    Map(#[from] MapError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Volume(#[from] VolumeError),
    #[error("there is no such snapshot")]
    Unknown,
    #[error("the work was cut off")]
    CutOff,
}
