//! Sandboxes and their lifetimes.

use std::collections::BTreeMap;

use sandling_engine::{
    BootMode, CreateSpec, Failover, Lifetime, LifetimeChange, SandboxId, SandboxInfo, SandboxSettings, SnapshotId,
    State, USUAL_CHECKPOINTS,
};
use sandling_wire::{
    CheckpointsName, CreateSandbox, DEFAULT_TEMPLATE, FailedOverView, FailoverName, FailoverView, LifecyclePatch,
    LifecycleView, SandboxView,
};

use super::network::network_spec;
use super::network_view::network_summary;
use super::{IntoEngine, IntoWire, seconds};
use crate::error::ApiError;

/// Metadata with this prefix is stored, but never shown again.
const SECRET: &str = "secret.";
/// The metadata key by which clients see which build a sandbox was created for.
pub(crate) const BUILD: &str = "build";

impl IntoWire for SandboxInfo {
    type Wire = SandboxView;

    fn into_wire(self) -> SandboxView {
        SandboxView {
            network: network_summary(&self),
            metadata: shown_metadata(&self),
            id: self.id.to_string(),
            name: self.name,
            template: self.template,
            cpu: self.vcpus,
            memory_mb: self.memory_mib,
            disk_mb: self.disk_mib,
            status: status(self.state),
            durability: None,
            failover: self.settings.failover.map(failover_view),
            created_at: self.created_at.to_string(),
            guest_ip: sandling_network::Ends::default().guest_address.to_string(),
            from_snapshot: self.from_snapshot.map(|id| id.to_string()),
            labels: self.labels,
            workdir: self.settings.process.workdir,
            boot_ms: self.boot_ms.round() as u64,
            boot_mode: match self.boot_mode {
                BootMode::Standby => "standby",
                BootMode::Restore => "snapshot",
                BootMode::Boot => "boot",
            },
            persistent: self.lifetime.persistent,
            ttl_seconds: self.lifetime.ttl_seconds,
            idle_seconds: self.lifetime.idle_seconds,
            expires_at: expires_at(&self.lifetime),
            workspace: self.workspace,
            checkpoints_kept: self.timeline.keep,
            volumes: self.volumes.into_wire(),
            boundary: serde_json::to_value(&self.boundary).unwrap_or_default(),
        }
    }
}

/// The client's metadata, and what PandaStack's clients read there about a child of a fork.
fn shown_metadata(info: &SandboxInfo) -> BTreeMap<String, String> {
    let own = info.metadata.iter().filter(|(key, _)| !key.starts_with(SECRET));
    let mut shown: BTreeMap<_, _> = own.map(|(key, value)| (key.clone(), value.clone())).collect();
    let mut add = |key: &str, value: String| drop(shown.insert(key.to_owned(), value));
    if let (Some(parent), Some(place)) = (&info.parent, &info.fork) {
        add("fork_tree_id", place.tree.clone());
        add("fork_parent_id", parent.to_string());
        add("fork_index", place.index.to_string());
    }
    if let Some(build) = &info.settings.for_build {
        add(BUILD, build.clone());
    }
    shown
}

pub(crate) fn status(state: State) -> &'static str {
    match state {
        State::Orphaned => "creating",
        State::Running | State::Stalled => "running",
        State::Paused => "paused",
        State::Hibernated => "hibernated",
        State::Ended => "deleted",
        State::Unreadable => "unreadable",
    }
}

fn failover_view(failover: Failover) -> FailoverView {
    let last = failover.last.map(|last| FailedOverView { from: last.from, point_at: last.to.to_string() });
    FailoverView { mode: FailoverName::Snapshot, point_at: None, problem: None, last }
}

fn expires_at(lifetime: &Lifetime) -> Option<String> {
    let ttl = i64::try_from(lifetime.ttl_seconds.filter(|_| !lifetime.persistent)?).ok()?;
    lifetime.from.checked_add(jiff::SignedDuration::from_secs(ttl)).ok().map(|at| at.to_string())
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

pub(crate) fn create_spec(request: CreateSandbox, workspace: &str) -> Result<CreateSpec, ApiError> {
    let from_snapshot = request.from_snapshot.filter(|id| !id.is_empty());
    let from_snapshot =
        from_snapshot.map(|id| SnapshotId::parse(&id).ok_or_else(|| ApiError::not_found("snapshot"))).transpose()?;
    let (metadata, labels) = (request.metadata.unwrap_or_default(), request.labels.unwrap_or_default());
    let env = request.env.unwrap_or_default();
    for (field, map) in [("metadata", &metadata), ("labels", &labels), ("env", &env)] {
        check_map(field, map)?;
    }
    check_env(&env)?;
    Ok(CreateSpec {
        name: request.name.filter(|name| !name.is_empty()).map(checked_name).transpose()?,
        template: request.template.unwrap_or_else(|| DEFAULT_TEMPLATE.to_owned()),
        from_snapshot,
        vcpus: request.cpu,
        memory_mib: request.memory_mb,
        disk_mib: request.disk_mb,
        pids: request.pids,
        ttl: seconds::lifetime("ttl_seconds", request.ttl_seconds)?,
        idle: seconds::lifetime("idle_seconds", request.idle_seconds)?,
        persistent: request.persistent.unwrap_or_default(),
        sleep: Default::default(),
        env,
        workspace: workspace.to_owned(),
        metadata,
        labels,
        settings: SandboxSettings { failover: request.failover.map(|_| Failover::default()), ..Default::default() },
        checkpoints: kept(request.checkpoints, request.checkpoints_kept)?,
        network: network_spec(request.network.unwrap_or_default())?,
        volumes: request.volumes.unwrap_or_default().into_iter().map(IntoEngine::into_engine).collect(),
    })
}

/// Checks a name. It must not look like an id, because paths take both.
fn checked_name(name: String) -> Result<String, ApiError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let starts = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic());
    if starts && name.len() <= 63 && name.bytes().all(allowed) && SandboxId::parse(&name).is_none() {
        return Ok(name);
    }
    Err(ApiError::bad_request(
        "the name of a sandbox starts with a letter, has at most 63 letters, digits, dots, dashes and underscores, and is \
         not an id",
    ))
}

pub(crate) fn check_map(field: &str, map: &BTreeMap<String, String>) -> Result<(), ApiError> {
    Ok(sandling_service::check_map(field, map)?)
}

pub(crate) fn check_env(env: &BTreeMap<String, String>) -> Result<(), ApiError> {
    Ok(sandling_service::check_env(env)?)
}

pub(crate) fn lifecycle_view(lifetime: &Lifetime, idle_for: std::time::Duration) -> LifecycleView {
    LifecycleView {
        ttl_seconds: lifetime.ttl_seconds.unwrap_or_default(),
        idle_seconds: lifetime.idle_seconds.unwrap_or_default(),
        persistent: lifetime.persistent,
        expires_at: expires_at(lifetime),
        idle_for_seconds: idle_for.as_secs(),
    }
}

pub(crate) fn lifetime_change(request: LifecyclePatch) -> Result<LifetimeChange, ApiError> {
    let limit = |field: &str, value: Option<u64>| -> Result<Option<Option<u64>>, ApiError> {
        let checked = seconds::lifetime(field, value)?;
        Ok(value.map(|_| checked.map(|span| span.as_secs())))
    };
    Ok(LifetimeChange {
        ttl_seconds: limit("ttl_seconds", request.ttl_seconds)?,
        idle_seconds: limit("idle_seconds", request.idle_seconds)?,
        persistent: request.persistent,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(json: serde_json::Value) -> Result<CreateSpec, ApiError> {
        create_spec(serde_json::from_value(json).unwrap(), "default")
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
    fn a_name_is_a_word_that_is_no_id() {
        for name in ["web", "Web-1.test_2", &"a".repeat(63)] {
            assert_eq!(spec(serde_json::json!({ "name": name })).unwrap().name.as_deref(), Some(name));
        }
        let id = "a11a7cf6-d824-4f01-9dca-2ff0c4457c0f";
        for name in ["1web", "a b", "-a", "a/b", "ä", &"a".repeat(64), id, &id.replace('-', "")] {
            assert!(spec(serde_json::json!({ "name": name })).is_err(), "{name}");
        }
        assert_eq!(spec(serde_json::json!({ "name": "" })).unwrap().name, None);
    }

    #[test]
    fn labels_of_users_do_not_set_anything() {
        let labels =
            serde_json::json!({"e2b.public_ports": "true", "template.user": "root", "sandling.for-volume": "x"});
        let metadata = serde_json::json!({"fork_tree_id": "t", "build": "b"});
        let spec = spec(serde_json::json!({ "labels": labels, "metadata": metadata })).unwrap();
        assert_eq!((spec.labels.len(), spec.metadata.len(), spec.settings), (3, 2, Default::default()));
    }

    #[test]
    fn clients_see_forks_and_builds_in_the_metadata() {
        let (id, at) = ("311a7cf6-d824-4f01-9dca-2ff0c4457c0f", "2026-11-16T16:11:27Z");
        let mut row = serde_json::json!({
            "id": id, "template": "base", "image": "", "state": "running", "vcpus": 1, "memory_mib": 1, "disk_mib": 1,
            "pids": 1, "created_at": at, "boot_mode": "restore", "boot_ms": 1.0, "workspace": "w",
            "lifetime": { "from": at, "persistent": false },
            "metadata": { "secret.key": "hidden", "role": "heir", "fork_tree_id": "forged", "fork_index": "9" },
        });
        row["boundary"] = serde_json::json!({ "accelerator": "tcg", "landlock": "full" });
        for layer in ["user_namespace", "mount_namespace", "network_namespace", "pid_namespace", "ipc_namespace"] {
            row["boundary"][layer] = true.into();
        }
        for layer in ["unprivileged_user", "no_capabilities", "no_new_privs", "seccomp"] {
            row["boundary"][layer] = true.into();
        }
        let shown = |row: &serde_json::Value| {
            let info: SandboxInfo = serde_json::from_value(row.clone()).unwrap();
            serde_json::to_value(info.into_wire().metadata).unwrap()
        };
        let own = serde_json::json!({ "role": "heir", "fork_tree_id": "forged", "fork_index": "9" });
        assert_eq!(shown(&row), own, "a sandbox without a parent shows what its user wrote");
        row["parent"] = id.into();
        row["fork"] = serde_json::json!({ "tree": "t", "index": 2 });
        row["settings"] = serde_json::json!({ "for_build": "b" });
        let expected = serde_json::json!({
            "role": "heir", "fork_tree_id": "t", "fork_parent_id": id, "fork_index": "2", "build": "b",
        });
        assert_eq!(shown(&row), expected);
    }

    #[test]
    fn variables_that_no_process_can_have_are_refused() {
        for env in [serde_json::json!({"A=B": "1"}), serde_json::json!({"": "1"}), serde_json::json!({"A": "\u{0}"})] {
            assert!(spec(serde_json::json!({ "env": env })).is_err(), "{env}");
        }
    }
}
