//! What can go wrong between a project and a sandbox.

use std::io;
use std::path::PathBuf;

use sandling_tools::ToolError;

#[derive(Debug, thiserror::Error)]
pub enum ProjectError {
    #[error("{path} cannot be read")]
    Read { path: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("{path} cannot be written, so nothing was applied")]
    Write { path: PathBuf, source: io::Error },
    #[error("{0:?} is not plain text, and a sandbox's paths must be: name it in .gitignore")]
    NotText(PathBuf),
    #[error("the project has more than {mib} MiB: name what is not needed in its .gitignore")]
    TooLarge { mib: u64 },
    #[error("the project has more than {most} files: name what is not needed in its .gitignore")]
    TooMany { most: usize },
    #[error("the project cannot be packed")]
    Archive(#[source] io::Error),
    #[error("the sandbox could not pack its files: {0}")]
    Packing(String),
    #[error("what the sandbox packed cannot be read")]
    Unpacking(#[source] io::Error),
    #[error(transparent)]
    Sandbox(#[from] ToolError),
    #[error(transparent)]
    Conflict(#[from] Conflict),
}

/// Something here is no longer as it was when it was copied.
#[derive(Debug, thiserror::Error)]
#[error("{} changed here meanwhile, so nothing was applied", .0.display())]
pub struct Conflict(pub PathBuf);
