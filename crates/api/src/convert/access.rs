//! Access control: tokens, workspaces, quotas, the audit log.

use jiff::{SignedDuration, Timestamp};
use sandling_service::{
    AuditEntry, AuditResult, ChainReport, CreatedToken, Principal, Quota, Resources, Scope, TokenInfo, Workspace,
};
use sandling_wire::{
    ActorView, AuditBreakView, AuditChainView, AuditView, CreateToken, Dialect, Limits, LimitsChange, MeView,
    NewTokenView, ScopeName, TokenView, Used, WorkspaceView,
};

use super::{IntoEngine, IntoWire};
use crate::error::ApiError;

/// The longest validity of a token, in days.
const MAX_DAYS: u32 = 3660;

impl IntoWire for Principal {
    type Wire = MeView;

    fn into_wire(self) -> MeView {
        MeView {
            user_id: self.token_prefix,
            name: self.name,
            workspace: self.workspace.to_string(),
            scope: self.scope.as_str(),
        }
    }
}

into_engine!(enum ScopeName => Scope { Read, Run, Admin, Operator });

/// When a new token expires; `None` means never.
pub(crate) fn expires_at(request: &CreateToken) -> Result<Option<Timestamp>, ApiError> {
    match request.expires_in_days {
        None => Ok(None),
        Some(days @ 1..=MAX_DAYS) => Ok(Some(Timestamp::now() + SignedDuration::from_hours(24 * i64::from(days)))),
        Some(_) => Err(ApiError::bad_request(format!("expires_in_days must be between 1 and {MAX_DAYS}"))),
    }
}

/// A token as the clients of a dialect know it.
pub(crate) fn token_view(info: TokenInfo, dialect: Dialect) -> TokenView {
    TokenView {
        prefix: dialect.token(&info.prefix),
        label: info.name.clone(),
        name: info.name,
        workspace: info.workspace.to_string(),
        scope: info.scope.as_str(),
        created_at: info.created_at.to_string(),
        expires_at: info.expires_at.map(|at| at.to_string()),
        last_used_at: info.last_used_at.map(|at| at.to_string()),
    }
}

pub(crate) fn new_token_view(created: CreatedToken, dialect: Dialect) -> NewTokenView {
    NewTokenView { token: dialect.token(created.secret.expose()), info: token_view(created.info, dialect) }
}

impl IntoWire for Workspace {
    type Wire = WorkspaceView;

    fn into_wire(self) -> WorkspaceView {
        WorkspaceView {
            name: self.name.to_string(),
            created_at: self.created_at.to_string(),
            record_runs: self.record_runs,
        }
    }
}

impl IntoWire for Quota {
    type Wire = Limits;

    fn into_wire(self) -> Limits {
        Limits {
            sandboxes: self.sandboxes,
            cpu: self.vcpus,
            memory_mb: self.memory_mib,
            disk_mb: self.disk_mib,
            creates_per_minute: self.creates_per_minute,
            requests_per_second: self.requests_per_second,
            open_requests: self.open_requests,
        }
    }
}

/// Changes the limits that a request names.
pub(crate) fn apply_limits(change: &LimitsChange, quota: &mut Quota) {
    let limits = [
        (change.sandboxes, &mut quota.sandboxes),
        (change.cpu, &mut quota.vcpus),
        (change.memory_mb, &mut quota.memory_mib),
        (change.disk_mb, &mut quota.disk_mib),
        (change.creates_per_minute, &mut quota.creates_per_minute),
        (change.requests_per_second, &mut quota.requests_per_second),
        (change.open_requests, &mut quota.open_requests),
    ];
    for (changed, limit) in limits {
        if let Some(changed) = changed {
            *limit = changed;
        }
    }
}

impl IntoWire for Resources {
    type Wire = Used;

    fn into_wire(self) -> Used {
        Used { sandboxes: self.sandboxes, cpu: self.vcpus, memory_mb: self.memory_mib, disk_mb: self.disk_mib }
    }
}

impl IntoWire for ChainReport {
    type Wire = AuditChainView;

    fn into_wire(self) -> AuditChainView {
        AuditChainView {
            workspace: self.workspace.to_string(),
            node: None,
            kind: self.kind.as_str(),
            entries: self.entries,
            without_hash: self.without_hash,
            pruned: self.anchor.0,
            pruned_hash: self.anchor.1.to_string(),
            last: self.head.0,
            last_hash: self.head.1.to_string(),
            broken: self.broken.map(|found| AuditBreakView { number: found.number, cause: found.cause.to_string() }),
        }
    }
}

impl IntoWire for AuditEntry {
    type Wire = AuditView;

    fn into_wire(self) -> AuditView {
        let (result, code) = match self.result {
            AuditResult::Ok => ("ok", None),
            AuditResult::Refused { code } => ("refused", Some(code)),
            AuditResult::Error { code } => ("error", Some(code)),
        };
        AuditView {
            number: self.number,
            node: None,
            time: self.time.to_string(),
            workspace: self.workspace.to_string(),
            actor: ActorView { prefix: self.actor.prefix, name: self.actor.name },
            action: self.action,
            object: self.object,
            result,
            code,
            request_id: self.request_id,
            remote: self.remote,
            recorded: self.recorded,
            kind: self.kind.as_str(),
            count: self.count,
            hash: self.link.map(|link| link.hash.to_string()),
        }
    }
}
