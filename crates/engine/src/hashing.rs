//! Digests of files and streams.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

/// The BLAKE3 digest of a file, in hex.
pub(crate) fn digest_of(path: &Path) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::open(path)?)?;
    Ok(hasher.finalize().to_hex().to_string())
}

/// Passes bytes on, and computes their digest.
pub(crate) struct Hashed<T> {
    pub(crate) inner: T,
    pub(crate) hasher: blake3::Hasher,
}

impl<T> Hashed<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self { inner, hasher: blake3::Hasher::new() }
    }

    pub(crate) fn digest(&self) -> [u8; 32] {
        *self.hasher.finalize().as_bytes()
    }
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..read]);
        Ok(read)
    }
}
