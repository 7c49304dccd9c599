//! Tokens, workspaces, quotas and the audit log.

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::{IntoParams, ToSchema};

/// The caller.
#[derive(Debug, Serialize, ToSchema)]
pub struct MeView {
    /// The prefix of the token, which stands for one user.
    pub user_id: String,
    pub name: String,
    pub workspace: String,
    /// `read`, `run`, `admin` or `operator`; each includes those before it.
    pub scope: &'static str,
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

/// A change of a workspace's limits. An absent limit stays as it is; null removes the limit.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsChange {
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>)]
    pub sandboxes: Option<Option<u32>>,
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>)]
    pub cpu: Option<Option<u32>>,
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>)]
    pub memory_mb: Option<Option<u32>>,
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>)]
    pub disk_mb: Option<Option<u32>>,
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>)]
    pub creates_per_minute: Option<Option<u32>>,
    /// Requests per second of each token, at least 1. A token may send those of four seconds at once.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>)]
    pub requests_per_second: Option<Option<u32>>,
    /// Requests, streams and WebSockets that each token may have open at once, at least 1.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>)]
    pub open_requests: Option<Option<u32>>,
}

/// Tells a limit that is null from one that is absent.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<u32>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
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
    /// The maximum sizes of sandboxes and volumes, and what snapshots, checkpoints, hibernated sandboxes, uploaded
    /// files, templates and sizes of templates that the workspace was the first to use store.
    pub disk_mb: u64,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct AuditParams {
    /// Only entries since this time.
    #[param(format = DateTime)]
    pub since: Option<String>,
    /// Only entries after those of an earlier list, whose `next` this is; or after this number.
    pub after: Option<String>,
    /// 100 if absent, at most 10000.
    pub limit: Option<u32>,
    /// The entries of another workspace; for operators.
    pub workspace: Option<String>,
    /// In a fleet: only the entries of this node.
    pub node: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct RecordingParams {
    /// In a fleet: the entry's node. If absent, all nodes are asked.
    pub node: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct AuditView {
    /// Increases from entry to entry. In a fleet, each node counts its own entries.
    pub number: i64,
    /// The node that has the entry; absent without a fleet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
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
    /// `change` or `refusal`. Each kind has its own chain, and refusals never push out changes.
    pub kind: &'static str,
    /// How many requests the entry stands for: more than one if it sums up refusals.
    pub count: u32,
    /// The entry's hash, which covers the entry before it in the same chain; null in entries of older versions.
    pub hash: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct AuditVerifyParams {
    /// Another workspace; for operators. If absent, your own workspace, or all for operators.
    pub workspace: Option<String>,
    /// In a fleet: only the chains of this node.
    pub node: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct AuditVerification {
    pub chains: Vec<AuditChainView>,
}

/// What was found in one chain of the audit log.
#[derive(Debug, Serialize, ToSchema)]
pub struct AuditChainView {
    pub workspace: String,
    /// The node that has the chain; absent without a fleet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// `change` or `refusal`.
    pub kind: &'static str,
    /// How many entries were checked.
    pub entries: u64,
    /// How many entries have no hash, because an older version wrote them.
    pub without_hash: u64,
    /// The last entry that was deleted because it was too old; 0 if none was.
    pub pruned: i64,
    /// The hash of that entry.
    pub pruned_hash: String,
    /// The newest entry.
    pub last: i64,
    pub last_hash: String,
    /// Where the chain is broken; null if it is intact.
    pub broken: Option<AuditBreakView>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct AuditBreakView {
    pub number: i64,
    pub cause: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct ActorView {
    pub prefix: String,
    pub name: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct AuditList {
    pub items: Vec<AuditView>,
    /// The `after` of the list that continues this one; null if there is no entry yet.
    pub next: Option<String>,
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
