//! Disks that are plugged into a running machine, and into a restored one if it was saved with them.
//!
//! QEMU never sees a path: the caller opens the file and sends a descriptor, so the jail does not have to contain it.
//! Each disk has a slot, which is its address on the SCSI bus. The guest and the device state of a saved machine refer
//! to the disk by its slot.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};
use serde_json::{Value, json};

use super::error::MachineError;
use super::handle::Machine;
use crate::jail::Inherit;
use crate::qmp::{Event, find_event};

const COMMAND_LIMIT: Duration = Duration::from_secs(30);
/// The guest's kernel releases a disk within moments, or never.
const RELEASE_LIMIT: Duration = Duration::from_secs(10);

/// The number of the first descriptor set.
const FIRST_SET: u32 = 100;

/// The controller that every machine has for these disks.
const BUS: &str = "scsi.0";

/// Whether the guest may write to a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlugAccess {
    ReadWrite,
    ReadOnly,
}

/// The content of a plugged-in disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlugSource {
    /// A raw file.
    File(PathBuf),
    /// Every access fails. For a machine that was saved with a disk that it must not have any more.
    Nothing { bytes: u64 },
}

/// A disk in one of a machine's slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plug {
    pub slot: u32,
    pub source: PlugSource,
    pub access: PlugAccess,
}

pub(super) fn descriptor_set(slot: u32) -> u32 {
    FIRST_SET + slot
}

pub(super) fn name(slot: u32) -> String {
    format!("volume-{slot}")
}

/// A guest's flush reaches the host's disk, and a discard frees space there.
pub(super) fn file_node(slot: u32, access: PlugAccess) -> Value {
    let read_only = access == PlugAccess::ReadOnly;
    json!({
        "driver": "raw", "node-name": name(slot), "read-only": read_only, "discard": "unmap",
        "file": {
            "driver": "file", "filename": format!("/dev/fdset/{}", descriptor_set(slot)),
            "read-only": read_only, "discard": "unmap",
        },
    })
}

pub(super) fn device(slot: u32) -> Value {
    json!({
        "driver": "scsi-hd", "id": name(slot), "bus": BUS, "channel": 0, "scsi-id": slot, "lun": 0, "drive": name(slot),
    })
}

impl Plug {
    /// The descriptor that a restored machine inherits for it.
    pub(super) fn inherited(&self) -> Option<Inherit> {
        match (&self.source, self.access) {
            (PlugSource::Nothing { .. }, _) => None,
            (PlugSource::File(path), PlugAccess::ReadOnly) => Some(Inherit::Read { path: path.clone() }),
            (PlugSource::File(path), PlugAccess::ReadWrite) => Some(Inherit::ReadWrite { path: path.clone() }),
        }
    }

    pub(super) fn node(&self) -> Value {
        match &self.source {
            PlugSource::File(_) => file_node(self.slot, self.access),
            PlugSource::Nothing { bytes } => {
                let fails = |kind: &str| json!({ "event": "none", "iotype": kind, "errno": 5 });
                json!({
                    "driver": "blkdebug", "node-name": name(self.slot),
                    "inject-error": [fails("read"), fails("write"), fails("write-zeroes"), fails("discard")],
                    "image": { "driver": "null-co", "size": bytes },
                })
            }
        }
    }

    pub(super) fn device(&self) -> Value {
        device(self.slot)
    }

    fn open(&self) -> Result<Option<File>, MachineError> {
        let PlugSource::File(path) = &self.source else { return Ok(None) };
        let access = if self.access == PlugAccess::ReadOnly { OFlags::RDONLY } else { OFlags::RDWR };
        let opened = open(path, access | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
        let opened =
            opened.map_err(|error| MachineError::File { step: "open", path: path.clone(), source: error.into() })?;
        Ok(Some(opened.into()))
    }
}

impl Machine {
    /// Puts a disk into its slot, which must be empty. The guest's kernel notices by itself.
    pub async fn plug(&self, plug: &Plug) -> Result<(), MachineError> {
        let file = plug.open()?;
        self.plug_in(plug.slot, plug.node(), plug.device(), file.as_ref().map(AsFd::as_fd)).await
    }

    pub(super) async fn plug_in(
        &self,
        slot: u32,
        node: Value,
        device: Value,
        file: Option<BorrowedFd<'_>>,
    ) -> Result<(), MachineError> {
        if let Some(file) = file {
            let set = json!({ "fdset-id": descriptor_set(slot) });
            self.qmp.execute_with("add-fd", set, Some(file), COMMAND_LIMIT).await?;
        }
        let plugged = async {
            self.command("blockdev-add", node).await?;
            self.command("device_add", device).await
        };
        let Err(error) = plugged.await else { return Ok(()) };
        // The first error is the one to report.
        let _ = self.forget(slot).await;
        Err(error)
    }

    /// Removes a disk. Data that the guest has not written to it yet is lost.
    pub async fn unplug(&self, slot: u32) -> Result<(), MachineError> {
        let events = self.qmp.events();
        self.command("device_del", json!({ "id": name(slot) })).await?;
        let is_released = |event: &Event| event.name == "DEVICE_DELETED" && event.data["device"] == name(slot);
        let released = find_event(events, |event| is_released(event).then_some(()));
        if tokio::time::timeout(RELEASE_LIMIT, released).await.is_err() {
            return Err(MachineError::NotReleased { slot });
        }
        self.forget(slot).await
    }

    async fn forget(&self, slot: u32) -> Result<(), MachineError> {
        let node = self.command("blockdev-del", json!({ "node-name": name(slot) })).await;
        // A disk that the machine was restored with, or that has no file, has no removable set.
        let _ = self.command("remove-fd", json!({ "fdset-id": descriptor_set(slot) })).await;
        node.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_never_reaches_qemu() {
        let source = PlugSource::File("/home/secret/volume.img".into());
        let plug = Plug { slot: 3, source, access: PlugAccess::ReadWrite };
        assert!(!plug.node().to_string().contains("secret"));
        assert!(matches!(plug.inherited(), Some(Inherit::ReadWrite { .. })));
    }

    #[test]
    fn a_read_only_disk_is_opened_read_only() {
        let plug = Plug { slot: 0, source: PlugSource::File("/v".into()), access: PlugAccess::ReadOnly };
        assert!(matches!(plug.inherited(), Some(Inherit::Read { .. })));
        assert_eq!(plug.node()["read-only"], true);
        assert_eq!(plug.node()["file"]["read-only"], true);
    }
}
