//! The bytes of files that differ, read from the machines.

use std::collections::BTreeSet;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use sandling_protocol::{Outcome, Part, Request, Response};

use super::compare::FileChange;
use super::{Diff, DiffError};
use crate::link::{Incoming, Link, LinkError};

/// Files of the same size up to this one are compared byte by byte; larger ones that were touched count as changed.
const COMPARED_BYTES: u64 = 8 << 20;
/// How many files are read at once.
const AT_ONCE: usize = 8;

impl Diff {
    /// Removes files from the list that were touched but have the same content.
    pub(super) async fn drop_false_alarms(&mut self) -> Result<(), DiffError> {
        let doubtful = |change: &FileChange| {
            change.is_doubtful() && change.after.as_ref().is_some_and(|after| after.size <= COMPARED_BYTES)
        };
        let paths = self.changes.iter().filter(|change| doubtful(change)).map(|change| change.path.clone());
        let looking: Vec<BoxFuture<'_, _>> = paths.map(|path| self.is_same(path).boxed()).collect();
        let same: Vec<_> = stream::iter(looking).buffered(AT_ONCE).collect().await;
        let mut alarms = BTreeSet::new();
        for looked in same {
            alarms.extend(looked?);
        }
        self.changes.retain(|change| !alarms.contains(&change.path));
        Ok(())
    }

    /// Returns the path if the file has the same bytes at both moments.
    async fn is_same(&self, path: String) -> Result<Option<String>, DiffError> {
        let before = self.read(&self.from, &path, COMPARED_BYTES);
        let after = self.read(&self.to, &path, COMPARED_BYTES);
        let (before, after) = tokio::try_join!(before, after)?;
        Ok((before.is_some() && before == after).then_some(path))
    }

    /// A file's bytes; `None` if there are more than `limit`, or if it cannot be read.
    pub(super) async fn read(&self, side: &super::Side, path: &str, limit: u64) -> Result<Option<Vec<u8>>, DiffError> {
        let mut reading = Reading::open(side.link(), &self.path_in_guest(path), Some(limit + 1))?;
        let mut bytes = Vec::new();
        loop {
            match reading.next().await {
                // A guest may send more than it was asked for.
                Ok(Some(more)) if bytes.len() as u64 <= limit => bytes.extend(more),
                Ok(Some(_)) => return Ok(None),
                Ok(None) => return Ok((bytes.len() as u64 <= limit).then_some(bytes)),
                // The file was removed or replaced meanwhile, because the machine keeps running.
                Err(LinkError::Failed(_)) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// A file that is being read.
pub(super) struct Reading(crate::link::Stream);

impl Reading {
    pub(super) fn open(link: &Link, path: &str, length: Option<u64>) -> Result<Self, LinkError> {
        Ok(Self(link.open(Request::ReadFile { path: path.to_owned(), offset: 0, length }, &[])?))
    }

    /// The next bytes; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<u8>>, LinkError> {
        loop {
            match self.0.next().await? {
                Incoming::Data { part: Part::Bytes, bytes, .. } => return Ok(Some(bytes)),
                Incoming::Data { .. } | Incoming::Event(_) => {}
                Incoming::End(Outcome::Ok(Response::Read { .. })) => return Ok(None),
                Incoming::End(Outcome::Ok(_)) => return Err(LinkError::Unexpected),
                Incoming::End(Outcome::Failed(failure)) => return Err(LinkError::Failed(failure)),
            }
        }
    }
}
