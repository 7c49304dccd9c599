//! Sandboxes and how long they live.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::network::NetworkRequest;
use crate::network_view::NetworkSummary;
use crate::volume::{MountedView, VolumeMount};

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct SandboxView {
    pub id: String,
    pub template: String,
    pub cpu: u32,
    pub memory_mb: u32,
    pub disk_mb: u32,
    /// `creating`, `running`, `paused`, `hibernated`, `unreadable` or `deleted`.
    pub status: &'static str,
    pub created_at: String,
    /// The same for all: each is alone with a gateway of its own.
    pub guest_ip: String,
    /// The snapshot that it was made from.
    pub from_snapshot: Option<String>,
    /// Without what was put there under names that begin with `secret.`.
    pub metadata: BTreeMap<String, String>,
    pub labels: BTreeMap<String, String>,
    pub boot_ms: u64,
    /// `standby` if a ready machine was taken, `snapshot` if one was restored for this request.
    pub boot_mode: &'static str,
    /// Its time to live and its idle limit do not apply.
    pub persistent: bool,
    pub ttl_seconds: Option<u64>,
    pub idle_seconds: Option<u64>,
    /// When its time to live is over, if it has one.
    pub expires_at: Option<String>,
    pub workspace: String,
    /// How many checkpoints it keeps, if it makes one before each step.
    pub checkpoints_kept: Option<u32>,
    pub network: NetworkSummary,
    pub volumes: Vec<MountedView>,
    /// Which accelerator runs it, and which layers of the jail are in force.
    #[schema(value_type = Object)]
    pub boundary: Value,
}

/// What a sandbox is now.
#[derive(Debug, Serialize, ToSchema)]
pub struct StatusView {
    pub status: &'static str,
}

/// What sandbox is wanted. What is absent comes from the template.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSandbox {
    #[schema(default = "code-interpreter", example = "base", pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$")]
    pub template: Option<String>,
    pub metadata: Option<BTreeMap<String, String>>,
    pub labels: Option<BTreeMap<String, String>>,
    /// The environment of every command in it.
    pub env: Option<BTreeMap<String, String>>,
    /// How long it lives; 0 or absent: the server's default.
    #[schema(maximum = 31622400)]
    pub ttl_seconds: Option<u64>,
    /// How long it may be unused; 0 or absent: as long as it lives.
    #[schema(maximum = 31622400)]
    pub idle_seconds: Option<u64>,
    pub persistent: Option<bool>,
    #[schema(minimum = 1, maximum = 16)]
    pub cpu: Option<u32>,
    #[schema(minimum = 256, maximum = 65536)]
    pub memory_mb: Option<u32>,
    /// At least the template's own.
    #[schema(maximum = 1048576)]
    pub disk_mb: Option<u32>,
    #[schema(maximum = 1024)]
    pub disk_gb: Option<u32>,
    /// Processes and threads, all together.
    #[schema(minimum = 16, maximum = 1000000)]
    pub pids: Option<u32>,
    pub from_snapshot: Option<String>,
    pub volumes: Option<Vec<VolumeMount>>,
    /// `every-exec`: a checkpoint before each command, cell and change of files, to rewind to.
    pub checkpoints: Option<CheckpointsName>,
    /// How many checkpoints without a name are kept; absent: 20.
    #[schema(minimum = 1, maximum = 100)]
    pub checkpoints_kept: Option<u32>,
    /// What it may reach; absent: what its template's or its workspace's default says, else nothing.
    pub network: Option<NetworkRequest>,
    /// Names that it may reach, as the public clients write it; the same as `network.allow`.
    pub egress_allowlist: Option<Vec<String>>,
}

/// When checkpoints are made.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CheckpointsName {
    EveryExec,
    /// Only those that are asked for.
    Never,
}

/// How long a sandbox may live. 0 stands for "without limit", because the public clients expect numbers.
#[derive(Debug, Serialize, ToSchema)]
pub struct LifecycleView {
    pub ttl_seconds: u64,
    pub idle_seconds: u64,
    pub persistent: bool,
    pub expires_at: Option<String>,
    /// For how long nobody has used it.
    pub idle_for_seconds: u64,
}

/// What is to change. A time to live counts from now; 0 takes a limit away.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LifecyclePatch {
    #[schema(maximum = 31622400)]
    pub ttl_seconds: Option<u64>,
    #[schema(maximum = 31622400)]
    pub idle_seconds: Option<u64>,
    pub persistent: Option<bool>,
}
