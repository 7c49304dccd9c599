//! BLAKE3 digests of files, as `b3sum` prints them, and the check that a file still matches its digest.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::publish;

/// Files are read in pieces of this size, with a progress report after each.
const PIECE: usize = 8 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileDigest {
    pub size: u64,
    pub blake3: String,
}

/// How thoroughly to check a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Trusts a file that was read in full and has not been touched since.
    Stamp,
    Full,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Mismatch {
    #[error("{file} is missing")]
    Missing { file: String },
    #[error("{file} has {found} bytes instead of {expected}")]
    Size { file: String, expected: u64, found: u64 },
    #[error("{file} was altered")]
    Content { file: String },
    #[error("{file} could not be read: {source}")]
    Io { file: String, source: io::Error },
}

/// Records which files were read in full, with the metadata that they had then.
pub(crate) struct Stamps {
    dir: PathBuf,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    inode: u64,
    size: u64,
    mtime_ns: i128,
    ctime_ns: i128,
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        let nanoseconds = |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
        Self {
            inode: metadata.ino(),
            size: metadata.len(),
            mtime_ns: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
            ctime_ns: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl Stamps {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Checks that the file at `path` is the one that `expected` describes.
    pub(crate) fn verify(&self, path: &Path, expected: &FileDigest, depth: Depth) -> Result<(), Mismatch> {
        let file = || path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let unreadable = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => Mismatch::Missing { file: file() },
            _ => Mismatch::Io { file: file(), source },
        };
        let before = fs::metadata(path).map_err(unreadable)?;
        if before.len() != expected.size {
            return Err(Mismatch::Size { file: file(), expected: expected.size, found: before.len() });
        }
        let stamp = Stamp::of(&before);
        if depth == Depth::Stamp && self.recorded(path).as_ref() == Some(&stamp) {
            return Ok(());
        }
        if &digest(path, &mut |_, _| ()).map_err(unreadable)? != expected {
            return Err(Mismatch::Content { file: file() });
        }
        self.record(path, &stamp);
        Ok(())
    }

    /// Records a file as read. Call it right after computing the file's digest.
    pub(crate) fn trust(&self, path: &Path) -> io::Result<()> {
        self.record(path, &Stamp::of(&fs::metadata(path)?));
        Ok(())
    }

    fn recorded(&self, path: &Path) -> Option<Stamp> {
        serde_json::from_slice(&fs::read(self.file(path)).ok()?).ok()
    }

    /// Best effort: without a stamp, the file is read again next time.
    fn record(&self, path: &Path, stamp: &Stamp) {
        if let Err(error) = publish::write_json(&self.file(path), stamp) {
            tracing::debug!(path = %path.display(), %error, "a file's stamp could not be recorded");
        }
    }

    fn file(&self, path: &Path) -> PathBuf {
        self.dir.join(format!("{}.json", crate::name::ContentId::of(path.as_os_str().as_encoded_bytes())))
    }
}

/// Reads the whole file. Reports the bytes done and the total to `on`.
pub(crate) fn digest(path: &Path, on: &mut dyn FnMut(u64, u64)) -> io::Result<FileDigest> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut hasher = blake3::Hasher::new();
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    while at < size {
        let data = next_data(&file, at)?.min(size);
        at += hash_zeros(&mut hasher, data - at);
        let wanted = (size - at).min(PIECE as u64) as usize;
        if wanted > 0 {
            file.read_exact_at(&mut piece[..wanted], at)?;
            hasher.update_rayon(&piece[..wanted]);
            at += wanted as u64;
        }
        on(at, size);
    }
    Ok(FileDigest { size, blake3: hasher.finalize().to_hex().to_string() })
}

/// The position of the next stored bytes. A sparse image is mostly holes, which need not be read.
fn next_data(file: &File, at: u64) -> io::Result<u64> {
    match seek(file, SeekFrom::Data(at)) {
        Ok(data) => Ok(data),
        Err(Errno::NXIO) => Ok(u64::MAX),
        // The file system does not support holes.
        Err(Errno::INVAL) => Ok(at),
        Err(error) => Err(error.into()),
    }
}

fn hash_zeros(hasher: &mut blake3::Hasher, count: u64) -> u64 {
    static ZEROS: [u8; 1 << 20] = [0; 1 << 20];
    let mut left = count;
    while left > 0 {
        let now = left.min(ZEROS.len() as u64);
        hasher.update_rayon(&ZEROS[..now as usize]);
        left -= now;
    }
    count
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::{Duration, SystemTime};

    use super::*;

    fn store_with_file(content: &[u8]) -> (tempfile::TempDir, PathBuf, Stamps) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("stamps")).unwrap();
        let path = dir.path().join("file");
        fs::write(&path, content).unwrap();
        let stamps = Stamps::new(dir.path().join("stamps"));
        (dir, path, stamps)
    }

    #[test]
    fn holes_count_as_zeros() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sparse");
        let file = File::create(&path).unwrap();
        file.set_len(40 << 20).unwrap();
        file.write_all_at(b"middle", 17 << 20).unwrap();
        file.write_all_at(b"later", (30 << 20) + 12345).unwrap();
        let plain = blake3::hash(&fs::read(&path).unwrap()).to_hex().to_string();
        assert_eq!(digest(&path, &mut |_, _| ()).unwrap(), FileDigest { size: 40 << 20, blake3: plain });
    }

    #[test]
    fn a_truncated_file_and_a_missing_one_are_noticed_without_reading() {
        let (_dir, path, stamps) = store_with_file(b"hello");
        let expected = digest(&path, &mut |_, _| ()).unwrap();
        stamps.verify(&path, &expected, Depth::Stamp).unwrap();
        fs::write(&path, b"hell").unwrap();
        let error = stamps.verify(&path, &expected, Depth::Stamp).unwrap_err();
        assert_eq!(error.to_string(), "file has 4 bytes instead of 5");
        fs::remove_file(&path).unwrap();
        assert!(matches!(stamps.verify(&path, &expected, Depth::Stamp), Err(Mismatch::Missing { .. })));
    }

    #[test]
    fn a_touched_file_is_read_again_and_an_altered_one_is_detected() {
        let (_dir, path, stamps) = store_with_file(b"hello");
        let expected = digest(&path, &mut |_, _| ()).unwrap();
        stamps.verify(&path, &expected, Depth::Stamp).unwrap();
        // File times can be coarse, but every file system shows an hour's difference.
        let write_later = |content: &[u8], hours: u64| {
            let mut file = File::create(&path).unwrap();
            file.write_all(content).unwrap();
            file.set_modified(SystemTime::now() + Duration::from_secs(3600 * hours)).unwrap();
        };
        write_later(b"hellO", 1);
        assert!(matches!(stamps.verify(&path, &expected, Depth::Stamp), Err(Mismatch::Content { .. })));
        write_later(b"hello", 2);
        stamps.verify(&path, &expected, Depth::Stamp).unwrap();
    }

    #[test]
    fn a_stamp_avoids_a_read_unless_the_check_is_full() {
        let (_dir, path, stamps) = store_with_file(b"hello");
        let other = FileDigest { size: 5, blake3: "not the digest".into() };
        stamps.trust(&path).unwrap();
        stamps.verify(&path, &other, Depth::Stamp).unwrap();
        assert!(matches!(stamps.verify(&path, &other, Depth::Full), Err(Mismatch::Content { .. })));
    }
}
