//! Which QEMU is installed here.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::config::MachineConfig;

/// Raised when the machine that [`super::command_line`] describes is no longer the one that was saved earlier.
pub const DEVICE_MODEL: u32 = 1;

/// What QEMU says of itself, in one line; nothing if it is not installed. Takes some 20 ms.
pub fn emulator_version() -> Option<String> {
    let output = Command::new(MachineConfig::QEMU).arg("--version").stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().next().map(str::to_owned)
}

/// Tells one QEMU from another without starting it: a saved machine is loaded only by the binary that saved it.
pub fn emulator_fingerprint() -> Option<String> {
    let binary = Path::new(MachineConfig::QEMU).metadata().ok()?;
    Some(format!("{}-{}", binary.len(), binary.mtime()))
}
