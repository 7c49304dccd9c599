//! Sandboxes and their lifetimes.

use std::collections::BTreeMap;

use sandling_engine::{
    BootMode, CreateSpec, Lifetime, LifetimeChange, SandboxInfo, SnapshotId, State, USUAL_CHECKPOINTS,
};
use sandling_wire::{CheckpointsName, CreateSandbox, LifecyclePatch, LifecycleView, SandboxView};

use super::network::network_spec;
use super::network_view::network_summary;
use super::{IntoEngine, IntoWire, seconds};
use crate::error::ApiError;

/// The default template.
const DEFAULT_TEMPLATE: &str = "code-interpreter";
/// Metadata with this prefix is stored, but never shown again.
const SECRET: &str = "secret.";

impl IntoWire for SandboxInfo {
    type Wire = SandboxView;

    fn into_wire(self) -> SandboxView {
        SandboxView {
            network: network_summary(&self),
            id: self.id.to_string(),
            template: self.template,
            cpu: self.vcpus,
            memory_mb: self.memory_mib,
            disk_mb: self.disk_mib,
            status: status(self.state),
            created_at: self.created_at.to_string(),
            guest_ip: sandling_network::Ends::default().guest_address.to_string(),
            from_snapshot: self.from_snapshot.map(|id| id.to_string()),
            metadata: self.metadata.into_iter().filter(|(key, _)| !key.starts_with(SECRET)).collect(),
            labels: self.labels,
            boot_ms: self.boot_ms.round() as u64,
            boot_mode: match self.boot_mode {
                BootMode::Standby => "standby",
                BootMode::Restore => "snapshot",
            },
            persistent: self.lifetime.persistent,
            ttl_seconds: self.lifetime.ttl_seconds,
            idle_seconds: self.lifetime.idle_seconds,
            expires_at: expires_at(&self.lifetime),
            workspace: self.workspace,
            checkpoints_kept: self.timeline.keep,
            volumes: self.volumes.into_iter().map(IntoWire::into_wire).collect(),
            boundary: serde_json::to_value(&self.boundary).unwrap_or_default(),
        }
    }
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
        settings: Default::default(),
        checkpoints: kept(request.checkpoints, request.checkpoints_kept)?,
        network: network_spec(request.network.unwrap_or_default())?,
        volumes: request.volumes.unwrap_or_default().into_iter().map(IntoEngine::into_engine).collect(),
    })
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
    fn labels_of_users_do_not_set_anything() {
        let labels =
            serde_json::json!({"e2b.public_ports": "true", "template.user": "root", "sandling.for-volume": "x"});
        let spec = spec(serde_json::json!({ "labels": labels })).unwrap();
        assert_eq!((spec.labels.len(), spec.settings), (3, Default::default()));
    }

    #[test]
    fn variables_that_no_process_can_have_are_refused() {
        for env in [serde_json::json!({"A=B": "1"}), serde_json::json!({"": "1"}), serde_json::json!({"A": "\u{0}"})] {
            assert!(spec(serde_json::json!({ "env": env })).is_err(), "{env}");
        }
    }
}
