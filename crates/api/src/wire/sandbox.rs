//! Sandboxes and how long they live.

use std::collections::BTreeMap;

use sandling_engine::{
    BootMode, CreateSpec, Lifetime, LifetimeChange, SandboxInfo, SnapshotId, State, USUAL_CHECKPOINTS,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::network::NetworkRequest;
use super::network_view::NetworkSummary;
use super::seconds;
use super::volume::{MountedView, VolumeMount};
use crate::error::ApiError;

/// The template of a client that names none.
const DEFAULT_TEMPLATE: &str = "code-interpreter";
/// Bounds for what a client may hang on a sandbox.
const MAX_ENTRIES: usize = 256;
const MAX_KEY: usize = 256;
const MAX_VALUE: usize = 32 * 1024;
/// What clients were told is kept and not shown again.
const SECRET: &str = "secret.";

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct SandboxView {
    pub id: String,
    template: String,
    cpu: u32,
    memory_mb: u32,
    disk_mb: u32,
    /// `creating`, `running`, `paused`, `hibernated` or `deleted`.
    status: &'static str,
    created_at: String,
    /// The same for all: each is alone with a gateway of its own.
    guest_ip: String,
    /// The snapshot that it was made from.
    from_snapshot: Option<String>,
    /// Without what was put there under names that begin with `secret.`.
    metadata: BTreeMap<String, String>,
    labels: BTreeMap<String, String>,
    pub boot_ms: u64,
    /// `standby` if a ready machine was taken, `snapshot` if one was restored for this request.
    boot_mode: &'static str,
    /// Its time to live and its idle limit do not apply.
    persistent: bool,
    ttl_seconds: Option<u64>,
    idle_seconds: Option<u64>,
    /// When its time to live is over, if it has one.
    expires_at: Option<String>,
    workspace: String,
    /// How many checkpoints it keeps, if it makes one before each step.
    checkpoints_kept: Option<u32>,
    network: NetworkSummary,
    volumes: Vec<MountedView>,
    /// Which accelerator runs it, and which layers of the jail are in force.
    #[schema(value_type = Object)]
    pub boundary: Value,
}

impl From<SandboxInfo> for SandboxView {
    fn from(info: SandboxInfo) -> Self {
        Self {
            network: (&info).into(),
            id: info.id.to_string(),
            template: info.template,
            cpu: info.vcpus,
            memory_mb: info.memory_mib,
            disk_mb: info.disk_mib,
            status: status(info.state),
            created_at: info.created_at.to_string(),
            guest_ip: sandling_network::Ends::default().guest_address.to_string(),
            from_snapshot: info.from_snapshot.map(|id| id.to_string()),
            metadata: info.metadata.into_iter().filter(|(key, _)| !key.starts_with(SECRET)).collect(),
            labels: info.labels,
            boot_ms: info.boot_ms.round() as u64,
            boot_mode: match info.boot_mode {
                BootMode::Standby => "standby",
                BootMode::Restore => "snapshot",
            },
            persistent: info.lifetime.persistent,
            ttl_seconds: info.lifetime.ttl_seconds,
            idle_seconds: info.lifetime.idle_seconds,
            expires_at: expires_at(&info.lifetime),
            workspace: info.workspace,
            checkpoints_kept: info.timeline.keep,
            volumes: info.volumes.into_iter().map(Into::into).collect(),
            boundary: serde_json::to_value(&info.boundary).unwrap_or_default(),
        }
    }
}

/// What a sandbox is now.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StatusView {
    pub(crate) status: &'static str,
}

pub(crate) fn status(state: State) -> &'static str {
    match state {
        State::Creating => "creating",
        State::Running => "running",
        State::Paused => "paused",
        State::Hibernated => "hibernated",
        State::Ended => "deleted",
        State::Unreadable => "unreadable",
    }
}

fn expires_at(lifetime: &Lifetime) -> Option<String> {
    let ttl = i64::try_from(lifetime.ttl_seconds.filter(|_| !lifetime.persistent)?).ok()?;
    lifetime.from.checked_add(jiff::SignedDuration::from_secs(ttl)).ok().map(|at| at.to_string())
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

fn kept(when: Option<CheckpointsName>, kept: Option<u32>) -> Result<Option<u32>, ApiError> {
    match (when.unwrap_or(CheckpointsName::Never), kept) {
        (CheckpointsName::EveryExec, kept) => Ok(Some(kept.unwrap_or(USUAL_CHECKPOINTS))),
        (CheckpointsName::Never, None) => Ok(None),
        (CheckpointsName::Never, Some(_)) => {
            Err(ApiError::bad_request("checkpoints_kept needs checkpoints to be `every-exec`"))
        }
    }
}

impl CreateSandbox {
    pub(crate) fn into_spec(self, workspace: &str) -> Result<CreateSpec, ApiError> {
        let from_snapshot = self.from_snapshot.filter(|id| !id.is_empty());
        let from_snapshot = from_snapshot
            .map(|id| SnapshotId::parse(&id).ok_or_else(|| ApiError::not_found("snapshot")))
            .transpose()?;
        let (metadata, labels) = (self.metadata.unwrap_or_default(), self.labels.unwrap_or_default());
        let env = self.env.unwrap_or_default();
        for (field, map) in [("metadata", &metadata), ("labels", &labels), ("env", &env)] {
            check_map(field, map)?;
        }
        check_env(&env)?;
        let network = self.network.unwrap_or_default().into_wish(self.egress_allowlist)?;
        Ok(CreateSpec {
            template: self.template.unwrap_or_else(|| DEFAULT_TEMPLATE.to_owned()),
            from_snapshot,
            vcpus: self.cpu,
            memory_mib: self.memory_mb,
            disk_mib: self.disk_mb.or(self.disk_gb.map(|gb| gb.saturating_mul(1024))),
            pids: self.pids,
            ttl: seconds::lifetime("ttl_seconds", self.ttl_seconds)?,
            idle: seconds::lifetime("idle_seconds", self.idle_seconds)?,
            persistent: self.persistent.unwrap_or_default(),
            sleep: Default::default(),
            env,
            workspace: workspace.to_owned(),
            metadata,
            labels,
            checkpoints: kept(self.checkpoints, self.checkpoints_kept)?,
            network,
            volumes: self.volumes.unwrap_or_default().into_iter().map(Into::into).collect(),
        })
    }
}

pub(crate) fn check_map(field: &str, map: &BTreeMap<String, String>) -> Result<(), ApiError> {
    let too_long = |(key, value): (&String, &String)| key.is_empty() || key.len() > MAX_KEY || value.len() > MAX_VALUE;
    if map.len() > MAX_ENTRIES || map.iter().any(too_long) {
        let message = format!(
            "{field} may have {MAX_ENTRIES} entries, with keys of 1 to {MAX_KEY} bytes and values of up to {MAX_VALUE}"
        );
        return Err(ApiError::bad_request(message));
    }
    Ok(())
}

/// What no process could be given.
pub(crate) fn check_env(env: &BTreeMap<String, String>) -> Result<(), ApiError> {
    let bad = |(name, value): (&String, &String)| name.is_empty() || name.contains(['=', '\0']) || value.contains('\0');
    match env.iter().find(|entry| bad(*entry)) {
        Some((name, _)) => Err(ApiError::bad_request(format!("{name:?} cannot be an environment variable"))),
        None => Ok(()),
    }
}

/// How long a sandbox may live. 0 stands for "without limit", because the public clients expect numbers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LifecycleView {
    ttl_seconds: u64,
    idle_seconds: u64,
    persistent: bool,
    expires_at: Option<String>,
    /// For how long nobody has used it.
    idle_for_seconds: u64,
}

impl LifecycleView {
    pub(crate) fn new(lifetime: &Lifetime, idle_for: std::time::Duration) -> Self {
        Self {
            ttl_seconds: lifetime.ttl_seconds.unwrap_or_default(),
            idle_seconds: lifetime.idle_seconds.unwrap_or_default(),
            persistent: lifetime.persistent,
            expires_at: expires_at(lifetime),
            idle_for_seconds: idle_for.as_secs(),
        }
    }
}

/// What is to change. A time to live counts from now; 0 takes a limit away.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LifecyclePatch {
    #[schema(maximum = 31622400)]
    ttl_seconds: Option<u64>,
    #[schema(maximum = 31622400)]
    idle_seconds: Option<u64>,
    persistent: Option<bool>,
}

impl LifecyclePatch {
    pub(crate) fn into_change(self) -> Result<LifetimeChange, ApiError> {
        let limit = |field: &str, value: Option<u64>| -> Result<Option<Option<u64>>, ApiError> {
            let checked = seconds::lifetime(field, value)?;
            Ok(value.map(|_| checked.map(|span| span.as_secs())))
        };
        Ok(LifetimeChange {
            ttl_seconds: limit("ttl_seconds", self.ttl_seconds)?,
            idle_seconds: limit("idle_seconds", self.idle_seconds)?,
            persistent: self.persistent,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(json: Value) -> Result<CreateSpec, ApiError> {
        serde_json::from_value::<CreateSandbox>(json).unwrap().into_spec("default")
    }

    #[test]
    fn what_the_public_clients_send_is_taken() {
        let body = serde_json::json!({
            "template": "code-interpreter", "metadata": {"a": "b"}, "ttl_seconds": 60, "persistent": true, "volumes": []
        });
        let spec = spec(body).unwrap();
        assert_eq!((spec.template.as_str(), spec.persistent), ("code-interpreter", true));
        assert_eq!(spec.ttl, Some(std::time::Duration::from_secs(60)));
    }

    #[test]
    fn what_is_not_there_is_said_to_be_missing() {
        let body = serde_json::json!({"from_snapshot": "x"});
        assert_eq!(spec(body).unwrap_err().status, axum::http::StatusCode::NOT_FOUND);
    }

    #[test]
    fn variables_that_no_process_can_have_are_refused() {
        for env in [serde_json::json!({"A=B": "1"}), serde_json::json!({"": "1"}), serde_json::json!({"A": "\u{0}"})] {
            assert!(spec(serde_json::json!({ "env": env })).is_err(), "{env}");
        }
    }
}
