//! Sandboxes as their users see them: a handle with commands, files, contexts, ports and the network.

mod activity;
mod archive;
mod command;
mod contexts;
mod error;
mod exec;
mod files;
mod fold;
mod handle;
mod network;
mod phase;
mod ports;
mod run_limits;
mod save;
mod saves;
mod upload;

pub use activity::Call;
pub(crate) use activity::{Activity, InUse};
pub use archive::{ArchiveDownload, ArchiveUpload};
pub(crate) use command::Command;
pub use contexts::{Cell, CellOutput};
pub use error::{ChangeError, CheckpointError, CreateError, GrowError, UseError};
pub use exec::{Collected, Execution, Output, RunError, RunSpec};
pub use files::{Download, Watch};
pub use handle::{Sandbox, SandboxUsage};
pub(crate) use phase::Phase;
pub use run_limits::RunLimits;
pub(crate) use save::ForkSave;
pub(crate) use saves::Saves;
pub use upload::Upload;
