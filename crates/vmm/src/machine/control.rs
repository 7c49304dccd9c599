//! The operations of a running machine.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};
use rustix::process::geteuid;
use serde_json::{Value, json};

use super::blocking::blocking;
use super::command_line::{CABLE_SOCKET, CONTROL_SOCKET, COPY_SOCKET, DISK, QMP_SOCKET};
use super::config::MachineConfig;
use super::error::MachineError;
use super::handle::Machine;
use crate::jail::{Death, FILES, MachineDir, is_plain_name};
use crate::qmp::QmpError;

const COMMAND_LIMIT: Duration = Duration::from_secs(30);
const END_LIMIT: Duration = Duration::from_secs(10);
/// How long `cont` waits for locked disks, and how often it tries.
const LOCKED_LIMIT: Duration = Duration::from_secs(10);
const RETRY_EVERY: Duration = Duration::from_millis(25);

impl Machine {
    /// Lets the guest run. This waits for copies of the process that an earlier caller made: they keep the disks locked
    /// until they have ended, which may take a moment after that caller's death.
    pub async fn cont(&self) -> Result<(), MachineError> {
        let deadline = Instant::now() + LOCKED_LIMIT;
        loop {
            match self.command("cont", json!({})).await {
                Err(error) if is_locked(&error) && Instant::now() < deadline => tokio::time::sleep(RETRY_EVERY).await,
                answer => return answer.map(drop),
            }
        }
    }

    /// Stops the guest's vCPUs and flushes its disk.
    pub async fn stop(&self) -> Result<(), MachineError> {
        self.command("stop", json!({})).await.map(drop)
    }

    /// QEMU's run state: `running`, `paused`, `inmigrate`, …
    pub async fn status(&self) -> Result<String, MachineError> {
        let answer = self.command("query-status", json!({})).await?;
        Ok(answer.get("status").and_then(Value::as_str).unwrap_or("unknown").to_owned())
    }

    /// Writes the state of all devices, without memory, to a file in [`MachineDir::files`], and syncs it to disk. The
    /// machine must be stopped. If it was booted, its memory is synced as well.
    pub async fn save_state(&self, name: &str) -> Result<(), MachineError> {
        self.write_state(name).await?;
        let files = self.dir.files();
        let (state, memory) = (files.join(name), files.join(MachineConfig::MEMORY));
        blocking(move || {
            sync(&state)?;
            if memory.symlink_metadata().is_ok() { sync(&memory) } else { Ok(()) }
        })
        .await
    }

    pub(super) async fn write_state(&self, name: &str) -> Result<(), MachineError> {
        if !is_plain_name(name) {
            return Err(MachineError::NotAFileName { name: name.to_owned() });
        }
        let path = self.dir.files().join(name);
        create_writable(&path).map_err(|source| MachineError::File { step: "create", path, source })?;
        self.command("xen-save-devices-state", json!({ "filename": format!("{FILES}/{name}") })).await.map(drop)
    }

    /// Makes the root disk larger. The guest's kernel notices at once.
    pub async fn resize_disk(&self, bytes: u64) -> Result<(), MachineError> {
        self.command("block_resize", json!({ "device": DISK, "size": bytes })).await.map(drop)
    }

    /// The name in [`MachineDir::files`] of the root disk's current overlay.
    pub async fn disk_overlay(&self) -> Result<Option<String>, MachineError> {
        let answer = self.command("query-block", json!({})).await?;
        let disk = answer.as_array().into_iter().flatten().find(|block| block["device"] == DISK);
        Ok(disk.and_then(|disk| overlay_name(disk["inserted"]["file"].as_str()?)))
    }

    /// Sets or removes the deadline (Unix time in milliseconds) at which the supervisor ends the machine.
    pub fn set_deadline(&self, deadline_ms: Option<u64>) -> Result<(), MachineError> {
        write_deadline(&self.dir, deadline_ms)
    }

    /// Kills the machine, waits for the end of its processes, and removes its sockets. Its files stay.
    pub async fn end(&self) -> Result<Death, MachineError> {
        self.processes.program.kill().map_err(MachineError::Process)?;
        self.await_end().await
    }

    /// Ends the machine after QEMU has closed its disk properly. Use this if the overlay is needed afterwards.
    pub async fn quit(&self) -> Result<Death, MachineError> {
        // QEMU may end before it answers.
        let _ = self.qmp.execute("quit", json!({}), COMMAND_LIMIT).await;
        let mut died = self.died();
        if tokio::time::timeout(END_LIMIT, died.wait_for(Option::is_some)).await.is_err() {
            return self.end().await;
        }
        self.await_end().await
    }

    async fn await_end(&self) -> Result<Death, MachineError> {
        let mut died = self.died();
        let death = match tokio::time::timeout(END_LIMIT, died.wait_for(Option::is_some)).await {
            Ok(Ok(death)) => death.clone().unwrap_or(Death::SupervisorLost),
            _ => return Err(MachineError::WillNotEnd),
        };
        remove_sockets(&self.dir);
        Ok(death)
    }

    pub(super) async fn command(&self, command: &str, arguments: Value) -> Result<Value, MachineError> {
        Ok(self.qmp.execute(command, arguments, COMMAND_LIMIT).await?)
    }
}

/// QEMU has no error class for a locked disk, so this compares the text.
fn is_locked(error: &MachineError) -> bool {
    matches!(error, MachineError::Qmp(QmpError::Refused { description, .. }) if description.ends_with(" lock"))
}

/// QEMU names a disk by its path, or, if its backing file is not the one in its header, by a JSON description.
fn overlay_name(file: &str) -> Option<String> {
    let described: Option<Value> = file.strip_prefix("json:").and_then(|text| serde_json::from_str(text).ok());
    let path = described.as_ref().map_or(Some(file), |disk| disk["file"]["filename"].as_str())?;
    path.strip_prefix(FILES)?.strip_prefix('/').map(str::to_owned)
}

pub(super) fn remove_sockets(dir: &MachineDir) {
    for name in [QMP_SOCKET, CONTROL_SOCKET, COPY_SOCKET, CABLE_SOCKET] {
        let _ = fs::remove_file(dir.supervisor().join(name));
    }
}

pub(super) fn write_deadline(dir: &MachineDir, deadline_ms: Option<u64>) -> Result<(), MachineError> {
    let path = dir.deadline();
    let written = match deadline_ms {
        Some(deadline) => MachineDir::replace(&path, &deadline.to_string()),
        None => MachineDir::remove(&path),
    };
    written.map_err(|source| MachineError::File { step: "write", path, source })
}

/// Creates an empty file for a machine whose user cannot create files in its directory. Root's machines can.
pub(super) fn create_writable(path: &Path) -> io::Result<()> {
    if geteuid().is_root() {
        return Ok(());
    }
    match fs::OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(file) => file.set_permissions(fs::Permissions::from_mode(0o666)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Syncs a file to disk and makes it readable, because it becomes a layer of machines that run as other users. Follows
/// no link, because QEMU could have put one there.
fn sync(path: &Path) -> Result<(), MachineError> {
    let failed = |source| MachineError::File { step: "sync", path: path.to_owned(), source };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::empty()).map_err(|error| failed(error.into()))?;
    rustix::fs::fchmod(&file, Mode::from_raw_mode(0o644)).map_err(|error| failed(error.into()))?;
    rustix::fs::fsync(&file).map_err(|error| failed(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_named_by_its_path_or_by_its_description() {
        assert_eq!(overlay_name("/vm/disk.qcow2").as_deref(), Some("disk.qcow2"));
        let described = r#"json:{"backing": {"file": {"filename": "/vm/a"}}, "file": {"filename": "/vm/b"}}"#;
        assert_eq!(overlay_name(described).as_deref(), Some("b"));
        for other in ["", "/vm", "/layers/x", "json:", "json:{}", "json:[1]"] {
            assert_eq!(overlay_name(other), None, "{other}");
        }
    }
}
