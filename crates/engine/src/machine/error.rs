//! Why a machine could not be made.

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
