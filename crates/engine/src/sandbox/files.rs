//! Files of a sandbox.

use std::collections::BTreeMap;
use std::sync::Arc;

use sandling_protocol::{Change, Entry, Event, Failure, FailureKind, Outcome, Part, Request, Response, WriteMode};

use super::activity::InUse;
use super::error::UseError;
use super::handle::Sandbox;
use super::upload::Upload;
use crate::link::{Incoming, LinkError, Stream};

/// The most entries one listing brings; a larger tree is walked piece by piece.
const MAX_ENTRIES: usize = 200_000;
/// The most bytes of entries that are kept, whatever a guest sends.
const MAX_LISTING: usize = 128 * 1024 * 1024;

/// A file that is being read.
pub struct Download {
    stream: Stream,
    _in_use: InUse,
}

/// Changes under a path, as they happen.
pub struct Watch {
    stream: Stream,
    _in_use: InUse,
}

impl Sandbox {
    pub fn read_file(self: &Arc<Self>, path: &str, offset: u64, length: Option<u64>) -> Result<Download, UseError> {
        let (live, in_use) = self.live()?;
        let stream = live.link.open(Request::ReadFile { path: path.to_owned(), offset, length }, &[])?;
        Ok(Download { stream, _in_use: in_use })
    }

    pub fn write_file(
        self: &Arc<Self>,
        path: &str,
        write: WriteMode,
        mode: Option<u32>,
        user: Option<String>,
    ) -> Result<Upload, UseError> {
        self.write_with_metadata(path, write, mode, user, BTreeMap::new())
    }

    /// Writes a file and, if there is any, replaces its metadata.
    pub fn write_with_metadata(
        self: &Arc<Self>,
        path: &str,
        write: WriteMode,
        mode: Option<u32>,
        user: Option<String>,
        metadata: BTreeMap<String, String>,
    ) -> Result<Upload, UseError> {
        let (live, in_use) = self.live()?;
        let stream = live.link.open(Request::WriteFile { path: path.to_owned(), write, mode, user, metadata }, &[])?;
        Ok(Upload::new(live, stream, in_use))
    }

    /// The entries of a directory, `depth` levels down.
    pub async fn list_dir(&self, path: &str, depth: u32) -> Result<Vec<Entry>, UseError> {
        let (live, _in_use) = self.live()?;
        let stream = live.link.open(Request::ListDir { path: path.to_owned(), depth }, &[])?;
        let mut lines = Vec::new();
        let keep = |_, bytes: Vec<u8>| {
            if lines.len() <= MAX_LISTING {
                lines.extend(bytes);
            }
        };
        stream.drain(keep).await?;
        if lines.len() > MAX_LISTING {
            let message = "the listing is too large; list fewer levels at once".to_owned();
            return Err(LinkError::Failed(Failure { kind: FailureKind::TooLarge, message }).into());
        }
        let entries = lines.split(|&b| b == b'\n').filter(|line| !line.is_empty()).take(MAX_ENTRIES);
        entries.map(|line| serde_json::from_slice(line).map_err(|_| LinkError::Unexpected.into())).collect()
    }

    pub async fn stat(&self, path: &str) -> Result<Entry, UseError> {
        match self.ask(Request::Stat { path: path.to_owned() }).await? {
            Response::Entry(entry) => Ok(entry),
            _ => Err(LinkError::Unexpected.into()),
        }
    }

    pub async fn make_dir(&self, path: &str, mode: Option<u32>, parents: bool) -> Result<(), UseError> {
        self.ask(Request::MakeDir { path: path.to_owned(), mode, parents, user: None }).await.map(drop)
    }

    /// Makes a directory, and those above it that are missing, as a user's own.
    pub async fn make_dir_for(&self, user: &str, path: &str) -> Result<(), UseError> {
        let (path, user) = (path.to_owned(), Some(user.to_owned()));
        self.ask(Request::MakeDir { path, mode: None, parents: true, user }).await.map(drop)
    }

    pub async fn move_path(&self, from: &str, to: &str) -> Result<(), UseError> {
        self.ask(Request::Move { from: from.to_owned(), to: to.to_owned() }).await.map(drop)
    }

    pub async fn remove(&self, path: &str, recursive: bool) -> Result<(), UseError> {
        self.ask(Request::Remove { path: path.to_owned(), recursive }).await.map(drop)
    }

    pub async fn chmod(&self, path: &str, mode: u32) -> Result<(), UseError> {
        self.ask(Request::Chmod { path: path.to_owned(), mode }).await.map(drop)
    }

    pub fn watch(self: &Arc<Self>, path: &str, recursive: bool) -> Result<Watch, UseError> {
        let (live, in_use) = self.live()?;
        let stream = live.link.open(Request::Watch { path: path.to_owned(), recursive }, &[])?;
        Ok(Watch { stream, _in_use: in_use.lasting() })
    }
}

impl Download {
    /// The next bytes; nothing at the end of the file.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, UseError> {
        loop {
            match self.stream.next().await? {
                Incoming::Data { part: Part::Bytes, bytes, .. } => return Ok(Some(bytes)),
                Incoming::Data { .. } | Incoming::Event(_) => {}
                Incoming::End(Outcome::Ok(Response::Read { .. })) => return Ok(None),
                Incoming::End(Outcome::Ok(_)) => return Err(LinkError::Unexpected.into()),
                Incoming::End(Outcome::Failed(failure)) => return Err(LinkError::Failed(failure).into()),
            }
        }
    }

    /// All of it, up to `limit` bytes.
    pub async fn collect(mut self, limit: usize) -> Result<Vec<u8>, UseError> {
        let mut all = Vec::new();
        while let Some(bytes) = self.next().await? {
            if all.len() + bytes.len() > limit {
                return Err(LinkError::TooLarge.into());
            }
            all.extend(bytes);
        }
        Ok(all)
    }
}

impl Watch {
    /// Waits until the watch stands: whatever changes after that is told.
    pub async fn placed(&mut self) -> Result<(), UseError> {
        match self.stream.next().await? {
            Incoming::Event(Event::Connected) => Ok(()),
            Incoming::End(Outcome::Failed(failure)) => Err(LinkError::Failed(failure).into()),
            _ => Err(LinkError::Unexpected.into()),
        }
    }

    pub async fn next(&mut self) -> Result<Change, UseError> {
        loop {
            match self.stream.next().await? {
                Incoming::Event(Event::Changed(change)) => return Ok(change),
                Incoming::End(Outcome::Failed(failure)) => return Err(LinkError::Failed(failure).into()),
                Incoming::End(Outcome::Ok(_)) => return Err(LinkError::Unexpected.into()),
                _ => {}
            }
        }
    }
}
