//! What is known about a volume, and about a sandbox's use of one.

use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::format::Format;
use super::ids::{SandboxId, VolumeId};

/// Enough for an ext4 file system with a journal.
pub(crate) const LEAST_MIB: u32 = 16;
pub(crate) const MOST_MIB: u32 = 65_536;
/// How many one sandbox can have.
pub(crate) const MOST_VOLUMES: usize = 14;
pub(crate) const LONGEST_NAME: usize = 64;

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
    /// Whether the volumes of an imported snapshot could have been a sandbox's.
    pub(crate) fn are_plausible(volumes: &[Self]) -> bool {
        let mut slots = std::collections::BTreeSet::new();
        let plausible = |saved: &Self| {
            let was = &saved.was;
            (was.slot as usize) < MOST_VOLUMES
                && is_name(&was.name)
                && is_mount_point(&was.mount)
                && (LEAST_MIB..=MOST_MIB).contains(&was.size_mib)
                && (saved.copied || saved.then == OnVolumes::Detach)
        };
        volumes.iter().all(|saved| slots.insert(saved.was.slot) && plausible(saved))
    }
}

/// Whether a volume can have this name, which is used in paths.
pub(crate) fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let begins = name.chars().next().is_some_and(|first| first.is_ascii_alphanumeric());
    begins && name.len() <= LONGEST_NAME && name.chars().all(plain)
}

/// Whether a volume may be mounted here, as far as the host can tell. The guest decides the rest.
pub(crate) fn is_mount_point(path: &str) -> bool {
    let plain = path.starts_with('/') && path.len() <= 1024 && !path.contains(char::is_control);
    let reserved = ["/proc", "/sys", "/dev", "/run", "/etc", "/usr"];
    let over = |reserved: &&str| Path::new(path).starts_with(reserved);
    let climbs = Path::new(path).components().any(|part| part == std::path::Component::ParentDir);
    plain && !climbs && Path::new(path) != Path::new("/") && !reserved.iter().any(over)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_mount_points_are_checked() {
        for good in ["a", "data", "my-data_2.0", "0"] {
            assert!(is_name(good), "{good:?}");
        }
        for bad in ["", ".", "..", "-x", "_x", "a/b", "a b", "ä", "a\0", &"x".repeat(65)] {
            assert!(!is_name(bad), "{bad:?}");
        }
        assert!(is_mount_point("/data/x"));
        for bad in ["", "data", "/", "/etc", "/proc/1", "/a/../etc", "/a\nb", &format!("/{}", "x".repeat(2000))] {
            assert!(!is_mount_point(bad), "{bad:?}");
        }
    }
}
