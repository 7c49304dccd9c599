//! One builder at a time. The lock is the kernel's, so it ends with its holder, however that ends, and with whatever
//! program the holder handed the file to.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::error::{BuildError, io_at};
use crate::progress::{Progress, Report, Step};

const POLL: Duration = Duration::from_millis(250);
/// Polls between two signs of life.
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

    /// For a program that must be over before anyone else builds here, even if it outlives us.
    pub(super) fn file(&self) -> &File {
        &self.file
    }
}
