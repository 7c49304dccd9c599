//! Copying many bytes past the page cache, which costs an emulated machine several times as much as the copy itself.

use std::fs::File;
use std::io::{self, Read, Seek, Write};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use sandling_protocol::LentDisk;

/// What addresses, offsets and lengths must be multiples of.
const BLOCK: usize = LentDisk::BLOCK;
/// How much is copied at once.
const PIECE: usize = 1 << 20;
/// A smaller copy gains nothing, and its bytes are probably needed soon.
const LEAST: u64 = 4 << 20;

/// Copies `bytes` bytes from the position of one file to that of another, until `stop` says so. Uses the page cache for few
/// bytes, and for files that cannot do without it.
pub fn copy_blocks(mut from: &File, mut to: &File, bytes: u64, stop: impl Fn() -> bool) -> io::Result<()> {
    let aligned = [from.stream_position()?, to.stream_position()?].iter().all(|at| at % BLOCK as u64 == 0);
    let past_cache = aligned && bytes >= LEAST;
    let _reads = if past_cache { PastCache::begin(from)? } else { None };
    let writes = if past_cache { PastCache::begin(to)? } else { None };
    let piece = usize::try_from(bytes).map_or(PIECE, |bytes| bytes.min(PIECE)).next_multiple_of(BLOCK);
    let mut memory = vec![0; piece + BLOCK];
    let start = memory.as_ptr().align_offset(BLOCK);
    let buffer = &mut memory[start..start + piece];
    let mut left = bytes;
    while left > 0 && !stop() {
        let wanted = usize::try_from(left).map_or(piece, |left| left.min(piece));
        // A disk is read in whole blocks.
        let read = from.read(&mut buffer[..wanted.next_multiple_of(BLOCK)])?.min(wanted);
        let is_last = read as u64 == left;
        let tail = if writes.is_some() { read % BLOCK } else { 0 };
        if read == 0 || (tail > 0 && !is_last) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        to.write_all(&buffer[..read - tail])?;
        left -= read as u64;
        if tail > 0 {
            drop(writes);
            return to.write_all(&buffer[read - tail..read]);
        }
    }
    Ok(())
}

/// While this lives, a file is read and written without the page cache.
struct PastCache<'a> {
    file: &'a File,
    before: OFlags,
}

impl<'a> PastCache<'a> {
    /// `None` if the file system does not support it.
    fn begin(file: &'a File) -> io::Result<Option<Self>> {
        let before = fcntl_getfl(file)?;
        match fcntl_setfl(file, before | OFlags::DIRECT) {
            Ok(()) => Ok(Some(Self { file, before })),
            Err(Errno::INVAL) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for PastCache<'_> {
    fn drop(&mut self) {
        // It was possible before.
        let _ = fcntl_setfl(self.file, self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at / 7) as u8).collect()
    }

    #[test]
    fn files_of_any_length_are_copied_from_and_to_any_position() {
        // Beside the test, because the usual place may be a file system without direct access.
        let folder = tempfile::tempdir_in(".").unwrap();
        for length in [0, 1, 4095, 4096, PIECE, LEAST as usize, LEAST as usize + 1, LEAST as usize + PIECE + 4097] {
            for (before, after) in [(0, 0), (4096, 4096), (4096, 3), (1, 4096)] {
                let content = bytes(before + length);
                let from = folder.path().join("from");
                std::fs::write(&from, &content).unwrap();
                let mut from = File::open(from).unwrap();
                from.seek(io::SeekFrom::Start(before as u64)).unwrap();
                let to = folder.path().join("to");
                std::fs::write(&to, vec![1; after]).unwrap();
                let mut end = File::options().write(true).open(&to).unwrap();
                end.seek(io::SeekFrom::End(0)).unwrap();
                copy_blocks(&from, &end, length as u64, || false).unwrap();
                let written = std::fs::read(&to).unwrap();
                assert!(written[after..] == content[before..], "{length} bytes from {before} to {after}");
            }
        }
    }

    #[test]
    fn a_source_that_ends_too_early_is_an_error_and_a_copy_can_be_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, bytes(100)).unwrap();
        let from = File::open(&path).unwrap();
        let to = tempfile::tempfile().unwrap();
        assert_eq!(copy_blocks(&from, &to, 101, || false).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let to = tempfile::tempfile().unwrap();
        copy_blocks(&from, &to, 100, || true).unwrap();
        assert_eq!(to.metadata().unwrap().len(), 0);
    }
}
