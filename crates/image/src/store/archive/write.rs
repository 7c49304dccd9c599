//! Writers that an export goes through.

use std::io::{self, Write};

use sha2::{Digest, Sha256};

use crate::progress::{Progress, Report, Step};

/// Bytes between two progress reports.
const REPORT_EVERY: u64 = 4 << 20;

/// Computes the SHA-256 of what goes through.
pub(super) struct Hashed<W> {
    inner: W,
    hasher: Sha256,
    bytes: u64,
}

impl<W: Write> Hashed<W> {
    pub(super) fn new(inner: W) -> Self {
        Self { inner, hasher: Sha256::new(), bytes: 0 }
    }

    /// The digest in hexadecimal, and the number of bytes.
    pub(super) fn finish(mut self) -> io::Result<(String, u64)> {
        self.inner.flush()?;
        Ok((hex(&self.hasher.finalize()), self.bytes))
    }
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reports how much went through.
pub(super) struct Reported<'a, W> {
    pub(super) inner: W,
    report: Report<'a>,
    progress: Progress,
    reported: u64,
}

impl<'a, W> Reported<'a, W> {
    pub(super) fn new(inner: W, total: u64, report: Report<'a>) -> Self {
        let progress = Progress { step: Step::Pack, done: 0, total: Some(total), detail: String::new() };
        report(&progress);
        Self { inner, report, progress, reported: 0 }
    }

    /// Names the file that comes next.
    pub(super) fn next_file(&mut self, path: &str) {
        self.progress.detail = path.to_owned();
    }
}

impl<W: Write> Write for Reported<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.progress.done += written as u64;
        if self.progress.done - self.reported >= REPORT_EVERY {
            self.reported = self.progress.done;
            (self.report)(&self.progress);
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
