//! Errors when a project is copied into a sandbox or back.

use std::io;
use std::path::PathBuf;

use sandling_tools::ToolError;

#[derive(Debug, thiserror::Error)]
pub enum ProjectError {
    #[error("cannot read {path}")]
    Read { path: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("cannot write {path}, so nothing was applied")]
    Write { path: PathBuf, source: io::Error },
    #[error("the path {0:?} is not UTF-8, which a sandbox needs; add it to .gitignore")]
    NotText(PathBuf),
    #[error("the project has more than {mib} MiB; add what is not needed to its .gitignore")]
    TooLarge { mib: u64 },
    #[error("the project has more than {most} files; add what is not needed to its .gitignore")]
    TooMany { most: usize },
    #[error("cannot pack the project")]
    Archive(#[source] io::Error),
    #[error("the sandbox could not pack its files: {0}")]
    Packing(String),
    #[error("cannot read the archive from the sandbox")]
    Unpacking(#[source] io::Error),
    #[error(transparent)]
    Sandbox(#[from] ToolError),
    #[error(transparent)]
    Conflict(#[from] Conflict),
}

/// A file has changed on this host since it was copied.
#[derive(Debug, thiserror::Error)]
#[error("{} changed here meanwhile, so nothing was applied", .0.display())]
pub struct Conflict(pub PathBuf);
