//! Digests of files.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// The BLAKE3 digest of a file, in hex.
pub(super) fn digest_of(path: &Path) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::open(path)?)?;
    Ok(hasher.finalize().to_hex().to_string())
}

/// Writes to a file and computes the digest of what it wrote.
pub(super) struct Hashing {
    file: io::BufWriter<File>,
    hasher: blake3::Hasher,
}

impl Hashing {
    pub(super) fn new(file: File) -> Self {
        Self { file: io::BufWriter::with_capacity(1 << 20, file), hasher: blake3::Hasher::new() }
    }

    pub(super) fn finish(mut self) -> io::Result<String> {
        self.file.flush()?;
        Ok(self.hasher.finalize().to_hex().to_string())
    }
}

impl Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
