//! What is known about a volume, and about a sandbox's use of one.

use std::fmt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use sandling_vmm::machine::MachineError;
use serde::{Deserialize, Serialize};

use crate::format::Format;
use crate::link::LinkError;
use crate::sandbox::SandboxId;
use crate::store::StoreError;

/// Enough for an ext4 file system with a journal.
pub(crate) const LEAST_MIB: u32 = 16;
pub(crate) const MOST_MIB: u32 = 65_536;
/// How many one sandbox can have.
pub(crate) const MOST_VOLUMES: usize = 14;
const LONGEST_NAME: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VolumeId(String);

impl VolumeId {
    pub(crate) fn fresh() -> Self {
        Self(uuid::Uuid::new_v4().to_string())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn file(&self, volumes: &Path) -> PathBuf {
        volumes.join(format!("{}.img", self.0))
    }
}

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VolumeKind {
    Ordinary,
    /// A moment of another volume. It can be read and cloned, and never changes.
    Snapshot,
    /// A copy that belongs to one sandbox, and ends with it.
    Private(SandboxId),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeInfo {
    pub id: VolumeId,
    pub workspace: String,
    pub name: String,
    pub size_mib: u32,
    pub created_at: Timestamp,
    pub kind: VolumeKind,
    /// The volume that it is a copy of, by the name that it had.
    pub from: Option<String>,
    /// It was unmounted by its last writer. One that was not has a journal to be replayed.
    pub clean: bool,
    #[serde(flatten)]
    pub format: Format<1>,
}

impl VolumeInfo {
    /// Whose alone it is.
    pub(crate) fn is_private(&self) -> Option<&SandboxId> {
        match &self.kind {
            VolumeKind::Private(sandbox) => Some(sandbox),
            VolumeKind::Ordinary | VolumeKind::Snapshot => None,
        }
    }

    #[cfg(test)]
    pub(crate) fn example(name: &str) -> Self {
        Self {
            id: VolumeId::fresh(),
            workspace: "default".to_owned(),
            name: name.to_owned(),
            size_mib: 64,
            created_at: Timestamp::now(),
            kind: VolumeKind::Ordinary,
            from: None,
            clean: true,
            format: Format::default(),
        }
    }
}

/// A volume of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// Its address on the machine's bus.
    pub slot: u32,
    pub volume: VolumeId,
    pub name: String,
    pub mount: String,
    pub read_only: bool,
    pub size_mib: u32,
    /// It is a copy that ends with the sandbox.
    #[serde(default)]
    pub private: bool,
}

/// What becomes of a sandbox's volumes in its copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnVolumes {
    /// A copy has none.
    Detach,
    /// A copy can read what was on them at that moment.
    ReadOnly,
    /// A copy has volumes of its own, which begin with what was on them.
    Clone,
}

/// A volume that a machine was saved with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedVolume {
    #[serde(flatten)]
    pub was: Attachment,
    pub then: OnVolumes,
    /// What was on it is among the snapshot's files.
    pub copied: bool,
}

impl SavedVolume {
    /// Whether volumes that somebody else wrote down could have been a sandbox's.
    pub(crate) fn are_plausible(volumes: &[Self]) -> bool {
        let mut slots = std::collections::BTreeSet::new();
        let plausible = |saved: &Self| {
            let was = &saved.was;
            (was.slot as usize) < MOST_VOLUMES
                && check_name(&was.name).is_ok()
                && check_mount(&was.mount).is_ok()
                && (LEAST_MIB..=MOST_MIB).contains(&was.size_mib)
                && (saved.copied || saved.then == OnVolumes::Detach)
        };
        volumes.iter().all(|saved| slots.insert(saved.was.slot) && plausible(saved))
    }
}

#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    #[error(
        "a volume's name has 1 to {LONGEST_NAME} letters, digits, dots, dashes and underscores, and begins with a letter or digit"
    )]
    Name,
    #[error("a volume has between {LEAST_MIB} and {MOST_MIB} MiB, not {0}")]
    Size(u32),
    #[error("there is a volume {0:?} already")]
    Exists(String),
    #[error("there is no volume {0:?}")]
    Unknown(String),
    #[error("volume {name:?} is in use by sandbox {by}: one may write it, or many read it")]
    InUse { name: String, by: String },
    #[error("volume {0:?} is a snapshot, which never changes; attach it read-only, or clone it")]
    NeverChanges(String),
    #[error("a sandbox has at most {MOST_VOLUMES} volumes")]
    TooMany,
    #[error("two volumes cannot be {0:?}")]
    Twice(String),
    #[error("{0:?} is no place for a volume: give an absolute path such as /data")]
    Place(String),
    #[error("the host has only {available_mib} MiB of disk space left; ask for a smaller volume or delete one")]
    NoSpace { available_mib: u64 },
    #[error("the sandbox has volumes: say what its copy does with them, `volumes`: `detach`, `read_only` or `clone`")]
    NotSaid,
    #[error(
        "a sandbox with volumes has no checkpoints: going back would put old memory over newer files; use a fork or a snapshot"
    )]
    NoCheckpoints,
    #[error("the volume could not be mounted")]
    Guest(#[from] LinkError),
    #[error("the volume could not be plugged in")]
    Machine(#[from] MachineError),
    #[error("a volume's file cannot be written; is the disk full?")]
    Files(#[from] std::io::Error),
    #[error("mke2fs failed (Debian: apt install e2fsprogs): {0}")]
    FileSystem(String),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the work was cut off")]
    CutOff,
}

/// A name that is fit for paths and people.
pub(crate) fn check_name(name: &str) -> Result<(), VolumeError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let begins = name.chars().next().is_some_and(|first| first.is_ascii_alphanumeric());
    if begins && name.len() <= LONGEST_NAME && name.chars().all(plain) { Ok(()) } else { Err(VolumeError::Name) }
}

/// What can be said about a place without asking the guest, which has the last word.
pub(crate) fn check_mount(path: &str) -> Result<(), VolumeError> {
    let plain = path.starts_with('/') && path.len() <= 1024 && !path.contains(char::is_control);
    let kept = ["/proc", "/sys", "/dev", "/run", "/etc", "/usr"];
    let over = |kept: &&str| Path::new(path).starts_with(kept);
    let climbs = Path::new(path).components().any(|part| part == std::path::Component::ParentDir);
    if !plain || climbs || Path::new(path) == Path::new("/") || kept.iter().any(over) {
        return Err(VolumeError::Place(path.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_places_are_checked() {
        for good in ["a", "data", "my-data_2.0", "0"] {
            assert!(check_name(good).is_ok(), "{good:?}");
        }
        for bad in ["", ".", "..", "-x", "_x", "a/b", "a b", "ä", "a\0", &"x".repeat(65)] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
        assert!(check_mount("/data/x").is_ok());
        for bad in ["", "data", "/", "/etc", "/proc/1", "/a/../etc", "/a\nb", &format!("/{}", "x".repeat(2000))] {
            assert!(check_mount(bad).is_err(), "{bad:?}");
        }
    }
}
