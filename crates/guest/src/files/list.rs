//! Directory listings of any length.

use std::fs;
use std::path::Path;

use sandling_protocol::{CHUNK, Failure, FailureKind, Part, Response};

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
    let mut listing = Listing { work, lines: Vec::with_capacity(CHUNK), entries: 0 };
    listing.directory(path, depth, Top::Yes)?;
    listing.send()?;
    Ok(Response::Listed { entries: listing.entries })
}

struct Listing<'a> {
    work: &'a mut WorkerStream,
    lines: Vec<u8>,
    entries: u64,
}

#[derive(PartialEq, Eq)]
enum Top {
    Yes,
    No,
}

impl Listing<'_> {
    fn directory(&mut self, path: &Path, depth: u32, top: Top) -> Result<(), Stopped> {
        let names = match fs::read_dir(path) {
            Ok(found) => found.flatten().map(|entry| entry.file_name()),
            // Unreadable directories below `path` are left out.
            Err(_) if top == Top::No => return Ok(()),
            Err(error) => return Err(about(path)(error).into()),
        };
        let mut names: Vec<_> = names.collect();
        names.sort();
        for name in names {
            let path = path.join(name);
            // It was removed after the directory was read.
            let Ok(metadata) = fs::symlink_metadata(&path) else {
                continue;
            };
            serde_json::to_writer(&mut self.lines, &entry(&path, &metadata)).map_err(unwritable)?;
            self.lines.push(b'\n');
            self.entries += 1;
            if self.lines.len() >= CHUNK {
                self.send()?;
            }
            if metadata.is_dir() && depth > 1 {
                self.directory(&path, depth - 1, Top::No)?;
            }
        }
        Ok(())
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
