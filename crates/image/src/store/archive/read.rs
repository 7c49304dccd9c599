//! Reading the files of an archive, which is not trusted, one after the other.

use std::cell::Cell;
use std::fs::{self, OpenOptions};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::rc::Rc;

use sha2::{Digest, Sha256};
use zstd::stream::read::Decoder;

use super::error::ArchiveError;
use super::write::hex;
use crate::digest::FileDigest;
use crate::error::io_at;
use crate::progress::{Progress, Report};

/// Files are hashed in pieces of this size and written in blocks, of which those with only zeros become holes.
const PIECE: usize = 1 << 20;
const BLOCK: usize = 16 << 10;
const ZEROS: [u8; BLOCK] = [0; BLOCK];
/// More than any export needs; it bounds the memory of a decompression bomb.
const WINDOW_LOG_MAX: u32 = 27;
/// What may come before a file's content: its header, a long name, the list of its holes.
const MOST_METADATA: u64 = 16 << 20;
/// A tar is padded at its end.
const MOST_PADDING: u64 = 1 << 20;

/// Computes the SHA-256 of what is read.
pub(super) struct Hashed<R> {
    inner: R,
    hasher: Sha256,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        self.hasher.update(&into[..read]);
        Ok(read)
    }
}

/// Fails once it has passed as many bytes as it may. The reader of tar keeps names and lists of holes in memory.
pub(super) struct Limited<R> {
    inner: R,
    left: Rc<Cell<u64>>,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        let left = self.left.get().checked_sub(read as u64);
        self.left.set(left.ok_or_else(|| io::Error::other("more bytes than a file of a template has"))?);
        Ok(read)
    }
}

type Stream<R> = Limited<Decoder<'static, BufReader<Hashed<R>>>>;

/// An archive that is being read.
pub(super) struct Reading<R: Read> {
    tar: tar::Archive<Stream<R>>,
    left: Rc<Cell<u64>>,
}

impl<R: Read> Reading<R> {
    pub(super) fn new(from: R) -> Result<Self, ArchiveError> {
        let mut stream = Decoder::new(Hashed { inner: from, hasher: Sha256::new() }).map_err(ArchiveError::Read)?;
        stream.window_log_max(WINDOW_LOG_MAX).map_err(ArchiveError::Read)?;
        let left = Rc::new(Cell::new(0));
        let limited = Limited { inner: stream.single_frame(), left: left.clone() };
        Ok(Self { tar: tar::Archive::new(limited), left })
    }

    pub(super) fn files(&mut self) -> Result<Files<'_, R>, ArchiveError> {
        Ok(Files { entries: self.tar.entries().map_err(ArchiveError::Read)?, left: self.left.clone() })
    }

    /// Checks that nothing follows the last file, and returns the SHA-256 of the archive.
    pub(super) fn finish(self) -> Result<String, ArchiveError> {
        self.left.set(MOST_PADDING);
        let mut stream = self.tar.into_inner();
        let mut padding = Vec::new();
        stream.read_to_end(&mut padding).map_err(ArchiveError::reading)?;
        let mut source = stream.inner.finish();
        let ends = source.read(&mut [0]).map_err(ArchiveError::Read)? == 0;
        if !ends || padding.iter().any(|byte| *byte != 0) {
            return Err(ArchiveError::damaged("something follows its end"));
        }
        Ok(hex(&source.into_inner().hasher.finalize()))
    }
}

pub(super) struct Files<'a, R: Read> {
    entries: tar::Entries<'a, Stream<R>>,
    left: Rc<Cell<u64>>,
}

impl<'a, R: Read> Files<'a, R> {
    /// A file that is read into memory.
    pub(super) fn small(&mut self, path: &str, most: u64) -> Result<Vec<u8>, ArchiveError> {
        let entry = self.next(path)?;
        if entry.size() > most {
            return Err(ArchiveError::Damaged(format!("{path} is too long")));
        }
        let mut text = Vec::new();
        entry.take(most).read_to_end(&mut text).map_err(ArchiveError::reading)?;
        Ok(text)
    }

    /// Writes the next file to `place` and compares it with its digest. Without a place, the file is skipped.
    pub(super) fn copy(
        &mut self,
        path: &str,
        expected: &FileDigest,
        place: Option<&Path>,
        progress: &mut Progress,
        report: Report<'_>,
    ) -> Result<(), ArchiveError> {
        let mut entry = self.next(path)?;
        if entry.size() != expected.size {
            return Err(ArchiveError::Damaged(format!("{path} has another size than its manifest says")));
        }
        progress.detail = path.to_owned();
        let target = place.map(create).transpose()?;
        let mut hasher = blake3::Hasher::new();
        let mut piece = vec![0; PIECE];
        let mut at = 0;
        loop {
            let length = fill(&mut entry, &mut piece).map_err(ArchiveError::reading)?;
            if length == 0 {
                break;
            }
            hasher.update_rayon(&piece[..length]);
            for (number, block) in piece[..length].chunks(BLOCK).enumerate() {
                if *block == ZEROS[..block.len()] {
                    continue;
                }
                if let (Some(file), Some(place)) = (&target, place) {
                    let offset = at + (number * BLOCK) as u64;
                    file.write_all_at(block, offset).map_err(io_at("write", place))?;
                }
            }
            at += length as u64;
            progress.done += length as u64;
            report(progress);
        }
        let found = FileDigest { size: at, blake3: hasher.finalize().to_hex().to_string() };
        if found != *expected {
            return Err(ArchiveError::Damaged(format!("{path} does not match its digest")));
        }
        if let (Some(file), Some(place)) = (&target, place) {
            file.set_len(at).map_err(io_at("write", place))?;
        }
        Ok(())
    }

    /// Whether all files were read.
    pub(super) fn is_at_end(&mut self) -> Result<bool, ArchiveError> {
        self.left.set(MOST_METADATA);
        Ok(self.entries.next().transpose().map_err(ArchiveError::reading)?.is_none())
    }

    fn next(&mut self, path: &str) -> Result<tar::Entry<'a, Stream<R>>, ArchiveError> {
        self.left.set(MOST_METADATA);
        let entry = self.entries.next().transpose().map_err(ArchiveError::reading)?;
        let entry = entry.ok_or_else(|| ArchiveError::Damaged(format!("it lacks {path}")))?;
        let kind = entry.header().entry_type();
        if *entry.path_bytes() != *path.as_bytes() || !(kind.is_file() || kind.is_gnu_sparse()) {
            return Err(ArchiveError::Damaged(format!("it has something else in place of {path}")));
        }
        // The content; the caller compares the size with what it expects.
        self.left.set(u64::MAX);
        Ok(entry)
    }
}

/// A new file, which machines of other users can read.
fn create(place: &Path) -> Result<fs::File, ArchiveError> {
    if let Some(dir) = place.parent() {
        fs::create_dir_all(dir).map_err(io_at("create", dir))?;
    }
    Ok(OpenOptions::new().write(true).create_new(true).mode(0o444).open(place).map_err(io_at("create", place))?)
}

/// Reads until the piece is full or the file ends.
fn fill(from: &mut impl Read, piece: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < piece.len() {
        match from.read(&mut piece[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
