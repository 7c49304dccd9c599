//! What the store knows about a sandbox.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sandling_vmm::boundary::Boundary;
use serde::{Deserialize, Serialize};

use super::format::Format;
use super::ids::{SandboxId, SnapshotId};
use super::lifetime::Lifetime;
use super::network::{EffectivePolicy, NetworkSettings};
use super::settings::SandboxSettings;
use super::snapshot::Standing;
use super::state::State;
use super::timeline::Timeline;
use super::volume::Attachment;

/// The workspace of everything where workspaces are not used.
pub const DEFAULT_WORKSPACE: &str = "default";

/// How a sandbox came to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BootMode {
    Standby,
    Restore,
    /// From a snapshot without memory.
    Boot,
}

/// The place of a child among the children of one fork.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkPlace {
    /// The fork. All of its children have the same id here.
    pub tree: String,
    pub index: usize,
}

/// What can be told about a sandbox.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SandboxInfo {
    pub id: SandboxId,
    /// Unique among the living sandboxes of its workspace. Copies do not inherit it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub template: String,
    /// The image it stands on, which outlives its template's name.
    pub image: String,
    pub state: State,
    pub vcpus: u32,
    pub memory_mib: u32,
    pub disk_mib: u32,
    pub pids: u32,
    pub created_at: Timestamp,
    pub boot_mode: BootMode,
    /// From the request to the guest's own answer.
    pub boot_ms: f64,
    /// How often it has booted from its own disk. Its first start is a restore.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub boots: u32,
    pub lifetime: Lifetime,
    /// Whose it is.
    pub workspace: String,
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub settings: SandboxSettings,
    pub boundary: Boundary,
    /// The bake that it stands on, by its key.
    #[serde(default)]
    pub bake: String,
    /// The snapshots that it stands on.
    #[serde(default)]
    pub standing: Standing,
    /// The sandbox that it was forked from.
    #[serde(default)]
    pub parent: Option<SandboxId>,
    /// Its place in that fork. The row always has this field: its absence marks a row of an older version.
    #[serde(default)]
    pub fork: Option<ForkPlace>,
    /// The snapshot that it was made from, if it was no fork.
    #[serde(default)]
    pub from_snapshot: Option<SnapshotId>,
    /// Where it can go back to.
    #[serde(default)]
    pub timeline: Timeline,
    /// What it says of its network itself.
    #[serde(default)]
    pub network: NetworkSettings,
    /// What it may reach, while it lives.
    #[serde(skip)]
    pub effective: EffectivePolicy,
    #[serde(default)]
    pub volumes: Vec<Attachment>,
    /// The variables of all its processes, encrypted. Its guest has them in memory only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variables: Option<String>,
    #[serde(flatten)]
    pub format: Format<1>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl SandboxInfo {
    /// Whether it hibernates without its memory, and boots when it wakes.
    pub fn sleeps_without_memory(&self) -> bool {
        self.state == State::Hibernated && self.standing.restored.is_none()
    }

    /// The snapshots that it needs: those that its machine stands on, and its checkpoints.
    pub(crate) fn snapshots(&self) -> impl Iterator<Item = &SnapshotId> {
        self.standing.needs().chain(self.timeline.snapshots())
    }
}
