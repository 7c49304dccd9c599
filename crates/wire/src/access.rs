//! Tokens, workspaces, quotas and the audit log.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// The caller.
#[derive(Debug, Serialize, ToSchema)]
pub struct MeView {
    /// The prefix of the token, which stands for one user.
    pub user_id: String,
    pub name: String,
    pub workspace: String,
    pub current_org: String,
    pub orgs: Vec<String>,
    /// `read`, `run`, `admin` or `operator`; each includes those before it.
    pub scope: &'static str,
    pub auth_method: &'static str,
}

#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateToken {
    /// A description for people.
    pub label: Option<String>,
    pub name: Option<String>,
    /// How many days it works; without an end if absent.
    #[schema(minimum = 1, maximum = 3660)]
    pub expires_in_days: Option<u32>,
    /// `read`, `run`, `admin` or `operator`; the caller's own if absent.
    pub scope: Option<ScopeName>,
}

impl CreateToken {
    pub fn into_name(self) -> String {
        self.label.or(self.name).unwrap_or_default()
    }
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScopeName {
    Read,
    Run,
    Admin,
    Operator,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct TokenView {
    pub prefix: String,
    pub label: String,
    pub name: String,
    pub workspace: String,
    pub scope: &'static str,
    pub created_at: String,
    pub expires_at: Option<String>,
    /// To the minute.
    pub last_used_at: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct TokenList {
    pub items: Vec<TokenView>,
}

/// A new token. Its secret is shown only in this response.
#[derive(Debug, Serialize, ToSchema)]
pub struct NewTokenView {
    pub token: String,
    #[serde(flatten)]
    pub info: TokenView,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateWorkspace {
    /// 1 to 63 lower-case letters, digits and dashes.
    #[schema(pattern = "^[a-z0-9][a-z0-9-]{0,62}$")]
    pub name: String,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PatchWorkspace {
    /// Whether the audit log records the code and output of runs.
    pub record_runs: bool,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct WorkspaceView {
    pub name: String,
    pub created_at: String,
    pub record_runs: bool,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct WorkspaceList {
    pub items: Vec<WorkspaceView>,
}

/// The limits of a workspace; null means unlimited.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    pub sandboxes: Option<u32>,
    pub cpu: Option<u32>,
    pub memory_mb: Option<u32>,
    pub disk_mb: Option<u32>,
    pub creates_per_minute: Option<u32>,
    /// Requests per second of each token. A token may send those of four seconds at once.
    pub requests_per_second: Option<u32>,
    /// Requests, streams and WebSockets that each token may have open at once.
    pub open_requests: Option<u32>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct QuotaView {
    pub limits: Limits,
    pub used: Used,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct Used {
    pub sandboxes: u64,
    pub cpu: u64,
    pub memory_mb: u64,
    /// The maximum sizes of sandboxes and volumes, and what snapshots, checkpoints and hibernated sandboxes store.
    pub disk_mb: u64,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct AuditParams {
    /// Only entries since this time.
    #[param(format = DateTime)]
    pub since: Option<String>,
    /// Only entries after this number.
    pub after: Option<i64>,
    /// 100 if absent, at most 10000.
    pub limit: Option<u32>,
    /// The entries of another workspace; for operators.
    pub workspace: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct AuditView {
    pub number: i64,
    pub time: String,
    pub workspace: String,
    /// The prefix and the name of the token.
    pub actor: ActorView,
    pub action: String,
    pub object: Option<String>,
    /// `ok`, `refused` or `error`.
    pub result: &'static str,
    pub code: Option<String>,
    pub request_id: String,
    pub remote: Option<String>,
    /// Whether the run was recorded.
    pub recorded: bool,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct ActorView {
    pub prefix: String,
    pub name: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct AuditList {
    pub items: Vec<AuditView>,
}

/// The code of a run and its output.
#[derive(Debug, Serialize, ToSchema)]
pub struct RecordingView {
    pub code: String,
    /// How many bytes are missing at the end.
    pub code_cut: u32,
    pub output: String,
    pub output_cut: u32,
}
