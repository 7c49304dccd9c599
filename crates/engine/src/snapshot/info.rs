//! What is known about a snapshot, and where its files are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fmt, fs};

use jiff::Timestamp;
use sandling_image::ContentId;
use sandling_network::Flow;
use serde::{Deserialize, Serialize};

use crate::format::Format;
use crate::made::DISK;
use crate::sandbox::SandboxId;
use crate::settings::SandboxSettings;
use crate::volume::SavedVolume;

/// A snapshot's id. Chosen before its content is known, because the disk on top of it names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SnapshotId(String);

impl SnapshotId {
    pub(crate) fn fresh() -> Self {
        Self(uuid::Uuid::new_v4().to_string())
    }

    /// The same for the same content.
    pub(crate) fn of(content: &str) -> Self {
        let digest = blake3::hash(content.as_bytes());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest.as_bytes()[..16]);
        Self(uuid::Builder::from_custom_bytes(bytes).into_uuid().to_string())
    }

    pub fn parse(text: &str) -> Option<Self> {
        uuid::Uuid::parse_str(text).ok().filter(|_| text.len() == 36).map(|id| Self(id.to_string()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What can be told about a snapshot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SnapshotInfo {
    pub id: SnapshotId,
    pub workspace: String,
    pub name: Option<String>,
    /// The sandbox that it is of.
    pub sandbox: SandboxId,
    pub template: String,
    /// The image and the bake that it stands on.
    pub image: ContentId,
    pub bake: String,
    pub vcpus: u32,
    pub memory_mib: u32,
    pub disk_mib: u32,
    pub pids: u32,
    pub created_at: Timestamp,
    /// Those that its sandbox had.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub settings: SandboxSettings,
    /// The snapshot that it was saved over.
    pub parent: Option<SnapshotId>,
    /// Whose pages are the layers of its memory, the lowest first; the last is its own.
    pub memory: Vec<SnapshotId>,
    /// The same of its disk.
    pub disk: Vec<SnapshotId>,
    /// Where it stands on a bake that came with it from elsewhere, instead of on one of a template here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Base>,
    /// What it adds to those.
    pub memory_bytes: u64,
    pub disk_bytes: u64,
    /// Of its own files, as they must be when it is restored.
    pub digests: Digests,
    /// Of all its layers' files, those below included.
    #[serde(default)]
    pub sums: Sums,
    /// Whether all that it stands on was on the disk, and not only in the page cache, before its row was written.
    #[serde(default)]
    pub synced: bool,
    /// What its machine had plugged in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<SavedVolume>,
    /// Connections that its guest had, which are nobody's when it goes on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connections: Vec<Flow>,
    /// Of what makes it what it is: two snapshots with the same digest are the same.
    pub digest: String,
    #[serde(flatten)]
    pub format: Format<1>,
}

impl SnapshotInfo {
    /// Whose files it needs besides its own.
    pub(crate) fn stands_on(&self) -> impl Iterator<Item = &SnapshotId> {
        self.memory.iter().chain(&self.disk).chain(self.base.iter().map(|base| &base.id))
    }

    /// A digest of the files it is made of, and of nothing that it is called, so that it stays the same where it is
    /// imported. The text is part of the format: rows and exports of every version hold digests of it.
    pub(crate) fn computed_digest(&self) -> String {
        let Digests { pages, map, state, disk } = &self.digests;
        let list = |sums: &[Sum]| {
            let one = |sum: &Sum| format!(r#"Sum {{ bytes: {}, digest: "{}" }}"#, sum.bytes, sum.digest);
            sums.iter().map(one).collect::<Vec<_>>().join(", ")
        };
        let digests = format!(r#"Digests {{ pages: "{pages}", map: "{map}", state: "{state}", disk: "{disk}" }}"#);
        let sums = format!("Sums {{ memory: [{}], disk: [{}] }}", list(&self.sums.memory), list(&self.sums.disk));
        let text = format!("{} {} {digests} {sums}", self.image, self.bake);
        blake3::hash(text.as_bytes()).to_hex().to_string()
    }

    /// What is known about one of its layers' files.
    pub(crate) fn sum(&self, part: Part, id: &SnapshotId) -> Option<Sum> {
        let (layers, sums, bytes, digest) = match part {
            Part::Memory => (&self.memory, &self.sums.memory, self.memory_bytes, &self.digests.pages),
            Part::Disk => (&self.disk, &self.sums.disk, self.disk_bytes, &self.digests.disk),
        };
        let known = layers.iter().position(|layer| layer == id).and_then(|at| sums.get(at)).cloned();
        // One that was made before sums were kept knows its own.
        known.or_else(|| (layers.last() == Some(id)).then(|| Sum { bytes, digest: digest.clone() }))
    }
}

/// A kind of layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Memory,
    Disk,
}

impl Part {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Part::Memory => "pages",
            Part::Disk => "disk",
        }
    }

    pub(crate) fn layers(self, snapshot: &SnapshotInfo) -> &[SnapshotId] {
        match self {
            Part::Memory => &snapshot.memory,
            Part::Disk => &snapshot.disk,
        }
    }
}

/// A layer's file, as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sum {
    pub bytes: u64,
    /// BLAKE3, in hex.
    pub digest: String,
}

/// Those of a snapshot's layers, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sums {
    pub memory: Vec<Sum>,
    pub disk: Vec<Sum>,
}

/// BLAKE3, in hex.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digests {
    pub pages: String,
    pub map: String,
    pub state: String,
    pub disk: String,
}

/// What a living machine stands on, beyond its template's bake.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// What its memory is restored from, and cannot do without.
    pub restored: Option<SnapshotId>,
    /// What it was last saved as: the next save stores what changed since.
    pub saved: Option<SnapshotId>,
    /// The layers of its disk, the lowest first.
    pub disk: Vec<SnapshotId>,
    /// The name of its own disk among its files, if it has been saved.
    pub top: Option<String>,
    /// See [`SnapshotInfo::base`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Base>,
    /// A disk that is about to become a layer, or has become one and may still lie among the machine's files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moving: Option<Moving>,
}

/// The lowest layers of a snapshot that was imported, under the names by which its disks know them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    /// Whose directory they are in.
    pub id: SnapshotId,
    pub root: String,
    pub baked: String,
}

/// A disk on its way from a machine's files to a snapshot's. Written down before the save begins, and taken back when
/// it is over: in between, [`mend`](super::mend) finds out how far it got.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moving {
    /// Whose layer it becomes.
    pub id: SnapshotId,
    /// What it is called among the machine's files.
    pub from: String,
}

impl Standing {
    pub(crate) fn top(&self) -> &str {
        self.top.as_deref().unwrap_or(DISK)
    }

    /// All that must be kept for it.
    pub(crate) fn needs(&self) -> impl Iterator<Item = &SnapshotId> {
        self.restored
            .iter()
            .chain(&self.saved)
            .chain(&self.disk)
            .chain(self.moving.iter().map(|moving| &moving.id))
            .chain(self.base.iter().map(|base| &base.id))
    }
}

/// Where a snapshot's files are.
#[derive(Debug, Clone)]
pub(crate) struct Files(PathBuf);

impl Files {
    pub(crate) fn new(snapshots: &Path, id: &SnapshotId) -> Self {
        Self(snapshots.join(id.as_str()))
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.0
    }

    pub(crate) fn pages(&self) -> PathBuf {
        self.0.join("pages")
    }

    pub(crate) fn map(&self) -> PathBuf {
        self.0.join("map")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.0.join("state")
    }

    pub(crate) fn disk(&self) -> PathBuf {
        self.0.join(DISK)
    }

    /// The file of a layer.
    pub(crate) fn layer(&self, part: Part) -> PathBuf {
        match part {
            Part::Memory => self.pages(),
            Part::Disk => self.disk(),
        }
    }

    pub(crate) fn volume(&self, slot: u32) -> PathBuf {
        self.0.join(format!("volume-{slot}.img"))
    }

    /// Of an imported bake: its memory and its template's root disk. What it wrote to that is [`Files::disk`].
    pub(crate) fn base_memory(&self) -> PathBuf {
        self.0.join("memory")
    }

    pub(crate) fn base_root(&self) -> PathBuf {
        self.0.join("root.img")
    }

    pub(crate) fn overlay(&self) -> PathBuf {
        self.0.join("overlay.qcow2")
    }

    /// Removes what a save that failed has written. The machine stands on the disk already.
    pub(super) fn leave_only_the_disk(&self) {
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            if entry.file_name() != DISK {
                // What cannot be removed now is removed when nothing stands on the disk any more.
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// The name, among a machine's files, of the disk on top of a snapshot's layer.
pub(crate) fn top_name(id: &SnapshotId) -> String {
    format!("disk-{id}.qcow2")
}

/// The name under which machines see a snapshot's layer of the disk.
pub(crate) fn disk_layer_name(id: &SnapshotId) -> String {
    format!("snapshot-{id}")
}
