//! The directory of one machine, and which process can reach what in it.
//!
//! ```text
//! DIR/machine.json   the caller's record; out of reach of the supervisor and the program
//! DIR/keeper/        the supervisor's: sockets, deadline, logs, exit.json; out of reach of the program
//! DIR/vm/            the program's own files, its /vm; anything in there may be hostile
//! ```
//!
//! The split matters: a compromised QEMU must not be able to name the process that the caller will kill, to move its
//! own deadline, or to put a link where the caller expects a socket.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

const NAMES: [&str; 2] = [MachineDir::SUPERVISOR, MachineDir::FILES];

/// A machine's directory on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineDir(PathBuf);

impl MachineDir {
    /// Running machines have this name on disk, so it stays.
    pub(super) const SUPERVISOR: &'static str = "keeper";
    pub(super) const FILES: &'static str = "vm";
    pub(super) const DEADLINE: &'static str = "deadline";
    pub(super) const EXIT: &'static str = "exit.json";
    pub(super) const CONSOLE_LOG: &'static str = "console.log";
    pub(super) const PROGRAM_LOG: &'static str = "qemu.log";

    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Creates the directories. Idempotent; the caller puts the disk overlay into [`Self::files`] afterwards.
    pub fn create(&self) -> io::Result<()> {
        for name in NAMES {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(self.0.join(name))?;
        }
        Ok(())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The program's own directory. Never follow a link in it.
    pub fn files(&self) -> PathBuf {
        self.0.join(Self::FILES)
    }

    pub fn supervisor(&self) -> PathBuf {
        self.0.join(Self::SUPERVISOR)
    }

    pub fn record(&self) -> PathBuf {
        self.0.join("machine.json")
    }

    pub fn deadline(&self) -> PathBuf {
        self.supervisor().join(Self::DEADLINE)
    }

    pub fn exit_report(&self) -> PathBuf {
        self.supervisor().join(Self::EXIT)
    }

    /// The newest part of the guest's console output; the part before it, if any, is in `console.log.1`.
    pub fn console_log(&self) -> PathBuf {
        self.supervisor().join(Self::CONSOLE_LOG)
    }

    /// The program's own output.
    pub fn program_log(&self) -> PathBuf {
        self.supervisor().join(Self::PROGRAM_LOG)
    }

    /// Removes a file, if it exists.
    pub(crate) fn remove(path: &Path) -> io::Result<()> {
        match fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Replaces a file atomically: a reader sees the old text or the new one. The supervisor, which may run as another
    /// user, can read it whatever the caller's umask is.
    pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
        let mut fresh = path.as_os_str().to_owned();
        fresh.push(".new");
        fs::write(&fresh, text)?;
        fs::set_permissions(&fresh, fs::Permissions::from_mode(0o644))?;
        fs::rename(&fresh, path)
    }
}
