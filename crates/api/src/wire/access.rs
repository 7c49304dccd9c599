//! Who may do what: tokens, workspaces, quotas, the audit log.

use jiff::{SignedDuration, Timestamp};
use sandling_service::{
    AuditEntry, AuditResult, CreatedToken, Principal, Quota, Resources, Scope, TokenInfo, Workspace,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::error::ApiError;

/// The longest that a token may be given, in days.
const MAX_DAYS: u32 = 3660;

/// Whoever sends the request.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MeView {
    /// The token's prefix: a token stands for one user.
    user_id: String,
    name: String,
    workspace: String,
    current_org: String,
    orgs: Vec<String>,
    /// `read`, `run`, `admin` or `operator`; each contains those before it.
    scope: &'static str,
    auth_method: &'static str,
}

impl From<Principal> for MeView {
    fn from(principal: Principal) -> Self {
        let workspace = principal.workspace.to_string();
        Self {
            user_id: principal.token_prefix,
            name: principal.name,
            current_org: workspace.clone(),
            orgs: vec![workspace.clone()],
            workspace,
            scope: principal.scope.as_str(),
            auth_method: "token",
        }
    }
}

#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateToken {
    /// For people.
    pub label: Option<String>,
    pub name: Option<String>,
    /// How long it works; for ever if absent.
    #[schema(minimum = 1, maximum = 3660)]
    pub expires_in_days: Option<u32>,
    /// `read`, `run`, `admin` or `operator`; the caller's own if absent.
    pub scope: Option<ScopeName>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScopeName {
    Read,
    Run,
    Admin,
    Operator,
}

impl From<ScopeName> for Scope {
    fn from(name: ScopeName) -> Self {
        match name {
            ScopeName::Read => Self::Read,
            ScopeName::Run => Self::Run,
            ScopeName::Admin => Self::Admin,
            ScopeName::Operator => Self::Operator,
        }
    }
}

impl CreateToken {
    pub(crate) fn scope(&self) -> Option<Scope> {
        self.scope.map(Scope::from)
    }

    pub(crate) fn expires_at(&self) -> Result<Option<Timestamp>, ApiError> {
        match self.expires_in_days {
            None => Ok(None),
            Some(days @ 1..=MAX_DAYS) => Ok(Some(Timestamp::now() + SignedDuration::from_hours(24 * i64::from(days)))),
            Some(_) => Err(ApiError::bad_request(format!("expires_in_days must be between 1 and {MAX_DAYS}"))),
        }
    }

    pub(crate) fn into_name(self) -> String {
        self.label.or(self.name).unwrap_or_default()
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TokenView {
    prefix: String,
    label: String,
    name: String,
    workspace: String,
    scope: &'static str,
    created_at: String,
    expires_at: Option<String>,
    /// Exact to a minute.
    last_used_at: Option<String>,
}

impl From<TokenInfo> for TokenView {
    fn from(info: TokenInfo) -> Self {
        Self {
            prefix: info.prefix,
            label: info.name.clone(),
            name: info.name,
            workspace: info.workspace.to_string(),
            scope: info.scope.as_str(),
            created_at: info.created_at.to_string(),
            expires_at: info.expires_at.map(|at| at.to_string()),
            last_used_at: info.last_used_at.map(|at| at.to_string()),
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TokenList {
    pub(crate) items: Vec<TokenView>,
}

/// A new token. This is the only time its secret is shown.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NewTokenView {
    token: String,
    #[serde(flatten)]
    info: TokenView,
}

impl From<CreatedToken> for NewTokenView {
    fn from(created: CreatedToken) -> Self {
        Self { token: created.secret.expose().to_owned(), info: created.info.into() }
    }
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateWorkspace {
    /// 1 to 63 lower-case letters, digits and dashes.
    #[schema(pattern = "^[a-z0-9][a-z0-9-]{0,62}$")]
    pub(crate) name: String,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PatchWorkspace {
    /// Whether the code and output of runs go to the audit log.
    pub(crate) record_runs: bool,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WorkspaceView {
    name: String,
    created_at: String,
    record_runs: bool,
}

impl From<Workspace> for WorkspaceView {
    fn from(workspace: Workspace) -> Self {
        Self {
            name: workspace.name.to_string(),
            created_at: workspace.created_at.to_string(),
            record_runs: workspace.record_runs,
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WorkspaceList {
    pub(crate) items: Vec<WorkspaceView>,
}

/// A workspace's limits; null is without limit.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    pub sandboxes: Option<u32>,
    pub cpu: Option<u32>,
    pub memory_mb: Option<u32>,
    pub disk_mb: Option<u32>,
    pub creates_per_minute: Option<u32>,
}

impl From<Quota> for Limits {
    fn from(quota: Quota) -> Self {
        Self {
            sandboxes: quota.sandboxes,
            cpu: quota.vcpus,
            memory_mb: quota.memory_mib,
            disk_mb: quota.disk_mib,
            creates_per_minute: quota.creates_per_minute,
        }
    }
}

impl From<Limits> for Quota {
    fn from(limits: Limits) -> Self {
        Self {
            sandboxes: limits.sandboxes,
            vcpus: limits.cpu,
            memory_mib: limits.memory_mb,
            disk_mib: limits.disk_mb,
            creates_per_minute: limits.creates_per_minute,
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct QuotaView {
    pub(crate) limits: Limits,
    pub(crate) used: Used,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Used {
    sandboxes: u64,
    cpu: u64,
    memory_mb: u64,
    /// What sandboxes and volumes may grow to, and what snapshots, checkpoints and sleeping sandboxes store.
    disk_mb: u64,
}

impl From<Resources> for Used {
    fn from(used: Resources) -> Self {
        Self { sandboxes: used.sandboxes, cpu: used.vcpus, memory_mb: used.memory_mib, disk_mb: used.disk_mib }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct AuditParams {
    /// Only from this time on.
    #[param(format = DateTime)]
    pub(crate) since: Option<String>,
    /// Only what follows this number.
    pub(crate) after: Option<i64>,
    /// 100 if absent, at most 10000.
    pub(crate) limit: Option<u32>,
    /// Another workspace's, for operators.
    pub(crate) workspace: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditView {
    number: i64,
    time: String,
    workspace: String,
    /// The prefix and the name of the token.
    actor: ActorView,
    action: String,
    object: Option<String>,
    /// `ok`, `refused` or `error`.
    result: &'static str,
    code: Option<String>,
    request_id: String,
    remote: Option<String>,
    /// There is a recording of the run.
    recorded: bool,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ActorView {
    prefix: String,
    name: String,
}

impl From<AuditEntry> for AuditView {
    fn from(entry: AuditEntry) -> Self {
        let (result, code) = match entry.result {
            AuditResult::Ok => ("ok", None),
            AuditResult::Refused { code } => ("refused", Some(code)),
            AuditResult::Error { code } => ("error", Some(code)),
        };
        Self {
            number: entry.number,
            time: entry.time.to_string(),
            workspace: entry.workspace.to_string(),
            actor: ActorView { prefix: entry.actor.prefix, name: entry.actor.name },
            action: entry.action,
            object: entry.object,
            result,
            code,
            request_id: entry.request_id,
            remote: entry.remote,
            recorded: entry.recorded,
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditList {
    pub(crate) items: Vec<AuditView>,
}

/// What was run and what it printed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RecordingView {
    pub(crate) code: String,
    /// Bytes left out at the end.
    pub(crate) code_cut: u32,
    pub(crate) output: String,
    pub(crate) output_cut: u32,
}
