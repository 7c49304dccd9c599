//! Dispatches requests about files.

use sandling_protocol::{Failure, Request, Response};

use super::{change, entry, list, path, read, walk, watch, write};
use crate::worker::{Cancelled, WorkerStream};

/// Why an operation has no result.
pub enum Stopped {
    Failed(Failure),
    /// The host no longer waits for the result.
    Cancelled,
}

impl From<Failure> for Stopped {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<Cancelled> for Stopped {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

/// Answers a request about files on its stream.
pub fn serve(request: Request, mut work: WorkerStream) {
    match answer(request, &mut work) {
        Ok(response) => work.end(Ok(response)),
        Err(Stopped::Failed(failure)) => work.end(Err(failure)),
        Err(Stopped::Cancelled) => {}
    }
}

fn answer(request: Request, work: &mut WorkerStream) -> Result<Response, Stopped> {
    Ok(match request {
        Request::ReadFile { path, offset, length } => read::read(path::check(&path)?, offset, length, work)?,
        Request::WriteFile { path, write, mode, user, metadata } => {
            write::write(path::check(&path)?, write, mode, user.as_deref(), metadata, work)?
        }
        Request::ListDir { path, depth } => list::list(path::check(&path)?, depth, work)?,
        Request::Walk { path, skip } => walk::walk(path::check(&path)?, &skip, work)?,
        Request::Stat { path } => Response::Entry(entry::stat(path::check(&path)?)?),
        Request::MakeDir { path, mode, parents, user } => {
            change::make_dir(path::check(&path)?, mode, parents, user.as_deref())?
        }
        Request::Move { from, to } => change::rename(path::check(&from)?, path::check(&to)?)?,
        Request::Remove { path, recursive } => change::remove(path::check(&path)?, recursive)?,
        Request::Chmod { path, mode } => change::chmod(path::check(&path)?, mode)?,
        Request::Watch { path, recursive } => watch::watch(path::check(&path)?, recursive, work)?,
        _ => return Err(Failure::unknown_request().into()),
    })
}
