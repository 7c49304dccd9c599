//! Sandboxes and how long they live.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::network::NetworkRequest;
use crate::network_view::NetworkSummary;
use crate::repl::{CellResult, RunCode};
use crate::snapshot::Durability;
use crate::volume::{MountedView, VolumeMount};

/// The template of a sandbox whose creator names none: with the server, in the command line and in the SDKs. E2B's
/// dialect has its own.
pub const DEFAULT_TEMPLATE: &str = "code-interpreter";

/// The working directory of our built-in templates.
pub const WORKSPACE: &str = "/workspace";

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct SandboxView {
    pub id: String,
    /// Unique in its workspace, and usable instead of the id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub template: String,
    pub cpu: u32,
    pub memory_mb: u32,
    pub disk_mb: u32,
    /// `creating`, `running`, `paused`, `hibernated`, `unreadable` or `deleted`.
    pub status: &'static str,
    /// Of a hibernated sandbox: whether what it wakes from survives the loss of its node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
    /// Absent if it is lost with its node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failover: Option<FailoverView>,
    pub created_at: String,
    /// The same for all sandboxes, because each has its own gateway.
    pub guest_ip: String,
    /// The snapshot that it was created from.
    pub from_snapshot: Option<String>,
    /// Entries whose name starts with `secret.` are not returned.
    pub metadata: BTreeMap<String, String>,
    pub labels: BTreeMap<String, String>,
    /// Where commands and relative paths start. Without it, commands start at home and paths must be absolute.
    pub workdir: Option<String>,
    pub boot_ms: u64,
    /// `standby` if a pre-warmed machine was used, `snapshot` if a machine was restored for the request, and `boot` if it
    /// booted from a snapshot without memory.
    pub boot_mode: &'static str,
    /// Whether its time to live and idle timeout are ignored.
    pub persistent: bool,
    pub ttl_seconds: Option<u64>,
    pub idle_seconds: Option<u64>,
    /// When its time to live ends, if it has one.
    pub expires_at: Option<String>,
    pub workspace: String,
    /// How many checkpoints are kept, if one is made before each step.
    pub checkpoints_kept: Option<u32>,
    pub network: NetworkSummary,
    pub volumes: Vec<MountedView>,
    /// The accelerator and the layers of the jail that isolate it.
    #[schema(value_type = Object)]
    pub boundary: Value,
}

/// The status of a sandbox.
#[derive(Debug, Serialize, ToSchema)]
pub struct StatusView {
    pub status: &'static str,
}

/// A sandbox to create. Absent fields come from the template.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSandbox {
    /// A name that is unique in the workspace. Paths take it instead of the id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "web", pattern = "^[A-Za-z][A-Za-z0-9._-]{0,62}$")]
    pub name: Option<String>,
    #[schema(default = json!(DEFAULT_TEMPLATE), example = "base", pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$")]
    pub template: Option<String>,
    /// An OCI image instead of a template, like `python:3.12-slim` or `ghcr.io/org/tool@sha256:…`. If the workspace has no
    /// template of it yet, the server pulls the image first, which can take minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "python:3.12-slim", min_length = 1, max_length = 512)]
    pub image: Option<String>,
    pub metadata: Option<BTreeMap<String, String>>,
    pub labels: Option<BTreeMap<String, String>>,
    /// Environment variables of every command in it.
    pub env: Option<BTreeMap<String, String>>,
    /// Time to live; if 0 or absent, the server's default.
    #[schema(maximum = 31622400)]
    pub ttl_seconds: Option<u64>,
    /// Idle timeout; if 0 or absent, there is none.
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
    /// The limit of processes and threads.
    #[schema(minimum = 16, maximum = 1000000)]
    pub pids: Option<u32>,
    /// The id or the name of a snapshot.
    pub from_snapshot: Option<String>,
    pub volumes: Option<Vec<VolumeMount>>,
    /// `every-exec` makes a checkpoint before each command, cell and change of files.
    pub checkpoints: Option<CheckpointsName>,
    /// How many checkpoints without a name are kept; 20 if absent.
    #[schema(minimum = 1, maximum = 100)]
    pub checkpoints_kept: Option<u32>,
    /// `snapshot`: if its node is lost, it wakes on another node of the fleet, where its last point was made. Needs a fleet with
    /// a store. Without it, the sandbox is lost with its node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failover: Option<FailoverName>,
    /// What it may reach; if absent, its template's or workspace's default applies, else nothing is allowed.
    pub network: Option<NetworkRequest>,
    /// Code to run at once, as a call of `run-code` would. The response comes when it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunCode>,
}

/// A new sandbox.
#[derive(Debug, Serialize, ToSchema)]
pub struct CreatedSandbox {
    #[serde(flatten)]
    pub sandbox: SandboxView,
    /// How the code of the request ended, if it had any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<FirstRun>,
}

/// How the code of a create ended.
#[derive(Debug, Serialize, ToSchema)]
pub struct FirstRun {
    /// The response that `run-code` would have given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<CellResult>,
    /// The error that `run-code` would have given, with its `status`, such as 504 after a timeout. The sandbox exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub error: Option<Value>,
}

/// When checkpoints are made.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CheckpointsName {
    EveryExec,
    /// Only on request.
    Never,
}

/// What another node goes on from when a sandbox's node is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FailoverName {
    Snapshot,
}

/// What happens to a sandbox if its node is lost.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct FailoverView {
    pub mode: FailoverName,
    /// The moment that it would go back to. Absent if there is no point yet: then it would be lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub point_at: Option<String>,
    /// Why the last attempt to make a point failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The last time that another node took it over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<FailedOverView>,
}

/// How a sandbox was taken over.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct FailedOverView {
    /// The node that was lost.
    pub from: String,
    /// The moment that the sandbox went back to.
    pub point_at: String,
}

/// How long a sandbox may live. 0 means no limit.
#[derive(Debug, Serialize, ToSchema)]
pub struct LifecycleView {
    pub ttl_seconds: u64,
    pub idle_seconds: u64,
    pub persistent: bool,
    pub expires_at: Option<String>,
    /// How long it has been idle.
    pub idle_for_seconds: u64,
}

/// A change. A time to live counts from now; 0 removes a limit.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LifecyclePatch {
    #[schema(maximum = 31622400)]
    pub ttl_seconds: Option<u64>,
    #[schema(maximum = 31622400)]
    pub idle_seconds: Option<u64>,
    pub persistent: Option<bool>,
}

/// How to hibernate a sandbox.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HibernateRequest {
    /// Whether to save the memory. Without it, the sandbox boots from its disk when it wakes.
    pub keep_memory: bool,
}

impl Default for HibernateRequest {
    fn default() -> Self {
        Self { keep_memory: true }
    }
}
