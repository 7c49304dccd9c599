//! Directory listings of any length.

use std::fs;
use std::path::Path;

use sandling_protocol::{CHUNK, Failure, FailureKind, Part, Response};
use serde::Serialize;

use super::entry::entry;
use super::path::about;
use super::serve::Stopped;
use crate::failure::failure;
use crate::worker::WorkerStream;

/// Sends the entries below `path`, `depth` levels deep, each directory's sorted by name.
pub fn list(path: &Path, depth: u32, work: &mut WorkerStream) -> Result<Response, Stopped> {
    if depth == 0 {
        return Err(failure(FailureKind::Invalid, "the depth of a listing must be at least 1").into());
    }
    let mut listing = Listing::new(work);
    add_directory(fs::read_dir(path).map_err(about(path))?, depth, &mut listing)?;
    listing.finish()
}

fn add_directory(directory: fs::ReadDir, depth: u32, listing: &mut Listing<'_>) -> Result<(), Stopped> {
    let mut paths: Vec<_> = directory.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        // It was removed after the directory was read.
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        listing.add(&entry(&path, &metadata))?;
        // The content of unreadable directories is left out.
        if metadata.is_dir()
            && depth > 1
            && let Ok(below) = fs::read_dir(&path)
        {
            add_directory(below, depth - 1, listing)?;
        }
    }
    Ok(())
}

/// Sends entries as lines of JSON, about as many at a time as one message takes.
pub struct Listing<'a> {
    work: &'a mut WorkerStream,
    lines: Vec<u8>,
    entries: u64,
}

impl<'a> Listing<'a> {
    pub fn new(work: &'a mut WorkerStream) -> Self {
        Self { work, lines: Vec::with_capacity(2 * CHUNK), entries: 0 }
    }

    pub fn add(&mut self, entry: &impl Serialize) -> Result<(), Stopped> {
        serde_json::to_writer(&mut self.lines, entry).map_err(unwritable)?;
        self.lines.push(b'\n');
        self.entries += 1;
        if self.lines.len() >= CHUNK { self.send() } else { Ok(()) }
    }

    pub fn finish(mut self) -> Result<Response, Stopped> {
        self.send()?;
        Ok(Response::Listed { entries: self.entries })
    }

    fn send(&mut self) -> Result<(), Stopped> {
        self.work.send(Part::Entries, &self.lines)?;
        self.lines.clear();
        Ok(())
    }
}

fn unwritable(error: serde_json::Error) -> Failure {
    failure(FailureKind::Other, error.to_string())
}
