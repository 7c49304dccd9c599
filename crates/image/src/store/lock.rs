//! The lock that allows one builder at a time. It is a kernel lock, so it ends with its holder and with the programs that
//! the holder passed the file to.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::error::{BuildError, io_at};
use crate::progress::{Progress, Report, Step};

const POLL: Duration = Duration::from_millis(250);
/// Polls between two progress reports.
const QUIET_POLLS: u32 = 4;

/// Held until dropped.
pub(super) struct StoreLock {
    file: File,
}

impl StoreLock {
    pub(super) fn acquire(store: &Path, report: Report<'_>) -> Result<Self, BuildError> {
        let path = store.join("lock");
        let opened = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path);
        let file = opened.map_err(io_at("open", &path))?;
        for polls in 0.. {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(error)) => return Err(io_at("lock", &path)(error)),
                Err(TryLockError::WouldBlock) => {
                    if polls % QUIET_POLLS == 0 {
                        report(&Progress::of(Step::Waiting, ""));
                    }
                    thread::sleep(POLL);
                }
            }
        }
        Ok(Self { file })
    }

    /// The file, for a program that must end before another build begins, even if this process ends earlier.
    pub(super) fn file(&self) -> &File {
        &self.file
    }
}
