//! Why a machine or a bake could not be made.

use std::path::PathBuf;

use sandling_image::Untrusted;
use sandling_vmm::disk::DiskError;
use sandling_vmm::machine::MachineError;
use sandling_vmm::qmp::QmpError;

use super::desktop::DesktopError;
use super::identify::IdentifyError;
use crate::link::LinkError;
use crate::process_cache::Fallback;

#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    #[error("could not write the machine's directory; is the disk full?")]
    Directory(#[source] std::io::Error),
    #[error("the machine did not start")]
    Machine(#[from] MachineError),
    #[error("the machine's control socket does not answer")]
    Socket(#[source] std::io::Error),
    #[error("the machine's guest does not answer")]
    Guest(#[from] LinkError),
    #[error("the pages of the machine's memory could not be written; is the disk full?")]
    Unwritten,
    #[error(transparent)]
    Identify(#[from] IdentifyError),
    #[error("the template's desktop does not answer")]
    Desktop(#[from] DesktopError),
}

impl MakeError {
    /// What this error of a machine with a cached process says about the process.
    pub(super) fn fallback(&self) -> Fallback {
        match self {
            Self::Guest(_) | Self::Machine(MachineError::Qmp(QmpError::TimedOut { .. })) => Fallback::Silent,
            _ => Fallback::Failed,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum BakeError {
    #[error("a file of the bake cannot be written; is the disk full?")]
    Files(#[from] std::io::Error),
    #[error("the machine failed")]
    Machine(#[from] MachineError),
    #[error("its disk could not be made")]
    Disk(#[from] DiskError),
    #[error("the guest failed")]
    Guest(#[from] LinkError),
    #[error(transparent)]
    Identify(#[from] IdentifyError),
    #[error("the guest did not come up; its console ended with: {console}")]
    Boot { source: LinkError, console: String },
    #[error("its desktop did not start")]
    Desktop(#[from] DesktopError),
    #[error("the work was cut off")]
    CutOff,
    #[error("the snapshot at {0} is damaged; build the template again with --force")]
    Damaged(PathBuf),
    #[error("the template's snapshot cannot be trusted")]
    Untrusted(#[from] Untrusted),
}
