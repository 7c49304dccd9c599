//! Access control: tokens, workspaces, quotas, the audit log.

use jiff::{SignedDuration, Timestamp};
use sandling_service::{
    AuditEntry, AuditResult, CreatedToken, Principal, Quota, Resources, Scope, TokenInfo, Workspace,
};
use sandling_wire::{
    ActorView, AuditView, CreateToken, Limits, MeView, NewTokenView, ScopeName, TokenView, Used, WorkspaceView,
};

use super::{IntoEngine, IntoWire};
use crate::error::ApiError;

/// The longest validity of a token, in days.
const MAX_DAYS: u32 = 3660;

impl IntoWire for Principal {
    type Wire = MeView;

    fn into_wire(self) -> MeView {
        let workspace = self.workspace.to_string();
        MeView {
            user_id: self.token_prefix,
            name: self.name,
            current_org: workspace.clone(),
            orgs: vec![workspace.clone()],
            workspace,
            scope: self.scope.as_str(),
            auth_method: "token",
        }
    }
}

impl IntoEngine for ScopeName {
    type Engine = Scope;

    fn into_engine(self) -> Scope {
        match self {
            ScopeName::Read => Scope::Read,
            ScopeName::Run => Scope::Run,
            ScopeName::Admin => Scope::Admin,
            ScopeName::Operator => Scope::Operator,
        }
    }
}

/// When a new token expires; `None` means never.
pub(crate) fn expires_at(request: &CreateToken) -> Result<Option<Timestamp>, ApiError> {
    match request.expires_in_days {
        None => Ok(None),
        Some(days @ 1..=MAX_DAYS) => Ok(Some(Timestamp::now() + SignedDuration::from_hours(24 * i64::from(days)))),
        Some(_) => Err(ApiError::bad_request(format!("expires_in_days must be between 1 and {MAX_DAYS}"))),
    }
}

impl IntoWire for TokenInfo {
    type Wire = TokenView;

    fn into_wire(self) -> TokenView {
        TokenView {
            prefix: self.prefix,
            label: self.name.clone(),
            name: self.name,
            workspace: self.workspace.to_string(),
            scope: self.scope.as_str(),
            created_at: self.created_at.to_string(),
            expires_at: self.expires_at.map(|at| at.to_string()),
            last_used_at: self.last_used_at.map(|at| at.to_string()),
        }
    }
}

impl IntoWire for CreatedToken {
    type Wire = NewTokenView;

    fn into_wire(self) -> NewTokenView {
        NewTokenView { token: self.secret.expose().to_owned(), info: self.info.into_wire() }
    }
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

impl IntoEngine for Limits {
    type Engine = Quota;

    fn into_engine(self) -> Quota {
        Quota {
            sandboxes: self.sandboxes,
            vcpus: self.cpu,
            memory_mib: self.memory_mb,
            disk_mib: self.disk_mb,
            creates_per_minute: self.creates_per_minute,
            requests_per_second: self.requests_per_second,
            open_requests: self.open_requests,
        }
    }
}

impl IntoWire for Resources {
    type Wire = Used;

    fn into_wire(self) -> Used {
        Used { sandboxes: self.sandboxes, cpu: self.vcpus, memory_mb: self.memory_mib, disk_mb: self.disk_mib }
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
        }
    }
}
