//! What the store knows about a snapshot, and what a living machine stands on.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sandling_image::ContentId;
use sandling_network::Flow;
use serde::{Deserialize, Serialize};

use super::format::Format;
use super::ids::{SandboxId, SnapshotId};
use super::lifetime::Kept;
use super::settings::SandboxSettings;
use super::volume::{OnVolumes, SavedVolume};

/// The name of a machine's own disk among its files, until it is first saved.
pub(crate) const DISK: &str = "disk.qcow2";

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
    /// Whose pages are the layers of its memory, the lowest first; the last is its own. Empty if only its disk was saved.
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
    /// Connections that its guest had. They are reset when it resumes.
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

    /// Whether a machine can be restored from it. If not, one can boot from its disk.
    pub fn has_memory(&self) -> bool {
        !self.memory.is_empty()
    }

    /// What a machine that was restored from it, or has booted from its disk, stands on.
    pub(crate) fn standing(&self) -> Standing {
        let restored = self.has_memory().then(|| self.id.clone());
        Standing {
            saved: restored.clone(),
            restored,
            disk: self.disk.clone(),
            top: Some(top_name(&self.id)),
            moving: None,
            base: self.base.clone(),
        }
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

/// What snapshot is wanted.
#[derive(Debug, Clone, Default)]
pub struct SnapshotSpec {
    pub name: Option<String>,
    /// What a sandbox that is restored from it gets of the volumes. Must be said if there are any.
    pub volumes: Option<OnVolumes>,
    pub kept: Kept,
}

/// Whether a snapshot belongs to its workspace's list, or is kept only for what stands on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    Listed,
    Hidden,
}

/// A template's name that stands for a snapshot. The snapshot is kept for as long as the template exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotTemplate {
    pub workspace: String,
    pub name: String,
    pub snapshot: SnapshotId,
    pub description: String,
}

/// The name, among a machine's files, of the disk on top of a snapshot's layer.
pub(crate) fn top_name(id: &SnapshotId) -> String {
    format!("disk-{id}.qcow2")
}

/// The name under which machines see a snapshot's layer of the disk.
pub(crate) fn disk_layer_name(id: &SnapshotId) -> String {
    format!("snapshot-{id}")
}
