//! A log of bounded size: the newest part, and the part before it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, openat, renameat};

const PART_BYTES: usize = 256 * 1024;

pub(super) struct BoundedLog {
    directory: OwnedFd,
    name: &'static str,
    file: OwnedFd,
    written: usize,
}

impl BoundedLog {
    pub fn create(directory: OwnedFd, name: &'static str) -> io::Result<Self> {
        let file = create_file(&directory, name)?;
        Ok(Self { directory, name, file, written: 0 })
    }

    /// Appends, and starts a new part when this one is full. On a full disk, log lines are lost and the machine
    /// continues.
    pub fn append(&mut self, bytes: &[u8]) {
        if self.written + bytes.len() > PART_BYTES {
            let _ = self.start_new_part();
        }
        if let Ok(written) = rustix::io::write(&self.file, bytes) {
            self.written += written;
        }
    }

    fn start_new_part(&mut self) -> io::Result<()> {
        renameat(&self.directory, self.name, &self.directory, format!("{}.1", self.name))?;
        self.file = create_file(&self.directory, self.name)?;
        self.written = 0;
        Ok(())
    }
}

fn create_file(directory: impl AsFd, name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(directory, name, flags, Mode::from_raw_mode(0o644))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_newest_lines_stay_and_the_size_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = BoundedLog::create(fs::File::open(dir.path()).unwrap().into(), "console.log").unwrap();
        for number in 0..100_000 {
            log.append(format!("line {number}\n").as_bytes());
        }
        let size = |name| fs::metadata(dir.path().join(name)).unwrap().len() as usize;
        assert!(size("console.log") <= PART_BYTES);
        assert!(size("console.log.1") <= PART_BYTES && size("console.log.1") > PART_BYTES / 2);
        assert!(fs::read_to_string(dir.path().join("console.log")).unwrap().ends_with("line 99999\n"));
    }
}
