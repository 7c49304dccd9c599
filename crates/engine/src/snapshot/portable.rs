//! A snapshot as one file, that can be carried to another machine.
//!
//! ```text
//! sandling-snapshot 1\n
//! a zstd stream of
//!     the manifest, as JSON, after its length
//!     each file that the manifest names, in its order:
//!         parts that are not holes: offset, length, bytes; a part without bytes is the end
//!         BLAKE3 of all that
//!     BLAKE3 of the manifest and of every digest
//! ```
//!
//! It has everything that a restore needs, the template's bake included: a bake that was made elsewhere is another one.

use std::io;

use sandling_image::ContentId;
use sandling_vmm::machine::{DEVICE_MODEL, Hardware, emulator_version};
use serde::{Deserialize, Serialize};

use super::restore::RestoreError;
use crate::model::{SnapshotId, SnapshotInfo};

pub(super) const MAGIC: &[u8] = b"sandling-snapshot 1\n";
/// The longest manifest that is read.
pub(super) const LONGEST_MANIFEST: u32 = 4 << 20;

#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error(transparent)]
    Restore(#[from] RestoreError),
    #[error("a snapshot without memory boots with its template, which an export does not have; export one with memory")]
    OnlyDisk,
    #[error("could not read a file of the snapshot, or the receiver has gone")]
    Io(#[from] io::Error),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub(super) snapshot: SnapshotInfo,
    pub(super) made_on: MadeOn,
    /// The names by which its disks know the lowest layers.
    pub(super) root: String,
    pub(super) baked: String,
    pub(super) files: Vec<Entry>,
}

/// What must be the same where it is restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MadeOn {
    pub(super) accelerator: String,
    pub(super) cpu_model: String,
    pub(super) device_model: u32,
    /// In its own words; what counts is the bake's key.
    pub(super) emulator: String,
}

impl MadeOn {
    pub(super) fn here(hardware: &Hardware) -> Self {
        Self {
            accelerator: hardware.accelerator.to_string(),
            cpu_model: hardware.cpu_model.clone(),
            device_model: DEVICE_MODEL,
            emulator: emulator_version().unwrap_or_else(|| "no QEMU".to_owned()),
        }
    }

    /// The first thing that is another one there: what, theirs, ours.
    pub(super) fn differs_from(&self, ours: Self) -> Option<(&'static str, String, String)> {
        let pairs = [
            ("the accelerator", self.accelerator.clone(), ours.accelerator),
            ("the CPU model", self.cpu_model.clone(), ours.cpu_model),
            ("the device model", self.device_model.to_string(), ours.device_model.to_string()),
            ("the emulator", self.emulator.clone(), ours.emulator),
        ];
        pairs.into_iter().find(|(_, theirs, ours)| theirs != ours)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) role: Role,
    pub(super) bytes: u64,
}

/// What a file is of the snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Role {
    BaseMemory,
    BaseRoot,
    BaseDisk,
    Pages(SnapshotId),
    Disk(SnapshotId),
    Map,
    State,
    Overlay,
    Volume(u32),
}

/// The files that a snapshot needs, in the order in which they are carried.
pub(super) fn roles(snapshot: &SnapshotInfo) -> Vec<Role> {
    let mut roles = vec![Role::Map, Role::State, Role::Overlay];
    roles.extend(snapshot.memory.iter().cloned().map(Role::Pages));
    roles.extend(snapshot.disk.iter().cloned().map(Role::Disk));
    let copied = snapshot.volumes.iter().filter(|volume| volume.copied);
    roles.extend(copied.map(|volume| Role::Volume(volume.was.slot)));
    roles.extend([Role::BaseMemory, Role::BaseRoot, Role::BaseDisk]);
    roles
}

/// Names a bake by what it is made of.
pub(super) fn base_id(image: &ContentId, root: &str, baked: &str, digests: &[[u8; 32]]) -> SnapshotId {
    let digests: Vec<String> = digests.iter().map(|digest| blake3::Hash::from(*digest).to_hex().to_string()).collect();
    SnapshotId::of(&format!("base {image} {root} {baked} {}", digests.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_goes_on_only_where_everything_is_the_same() {
        let here = MadeOn {
            accelerator: "tcg".to_owned(),
            cpu_model: "max".to_owned(),
            device_model: DEVICE_MODEL,
            emulator: "QEMU 7.2".to_owned(),
        };
        assert_eq!(here.differs_from(here.clone()), None);
        for (what, elsewhere) in [
            ("the accelerator", MadeOn { accelerator: "kvm".to_owned(), ..here.clone() }),
            ("the CPU model", MadeOn { cpu_model: "host".to_owned(), ..here.clone() }),
            ("the device model", MadeOn { device_model: DEVICE_MODEL + 1, ..here.clone() }),
            ("the emulator", MadeOn { emulator: "QEMU 8.0".to_owned(), ..here.clone() }),
        ] {
            assert_eq!(elsewhere.differs_from(here.clone()).map(|(what, ..)| what), Some(what));
        }
    }

    #[test]
    fn an_export_of_the_first_version_is_read() {
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/v1/export.json");
        let manifest: Manifest = serde_json::from_slice(&std::fs::read(golden).unwrap()).unwrap();
        let named: Vec<_> = manifest.files.iter().map(|entry| entry.role.clone()).collect();
        assert_eq!(named, roles(&manifest.snapshot), "an import refuses other files");
        assert_eq!(manifest.snapshot.computed_digest(), manifest.snapshot.digest);
        assert_eq!(MAGIC, b"sandling-snapshot 1\n");
    }
}
