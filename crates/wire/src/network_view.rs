//! What sandboxes may reach, and what went through their gateways, as it is shown.

use serde::Serialize;
use utoipa::ToSchema;

use crate::network::{ModeName, NetworkLimits, TlsName};

/// The policy of a sandbox.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct PolicyView {
    pub mode: ModeName,
    pub allow: Vec<String>,
    /// What is refused whatever else is allowed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
    pub tls: TlsName,
}

/// Who said so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PolicyFrom {
    /// The sandbox has a policy of its own.
    Sandbox,
    /// It follows its template's default.
    Template,
    /// It follows its workspace's default.
    Workspace,
    /// It would follow a default, and there is none.
    Nothing,
}

/// What a sandbox may reach, in a few words.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct NetworkSummary {
    #[serde(flatten)]
    pub policy: PolicyView,
    pub from: PolicyFrom,
    pub secrets: Vec<String>,
    pub group: Option<String>,
}

/// What a sandbox may reach, and what went through its gateway.
#[derive(Debug, Serialize, ToSchema)]
pub struct NetworkView {
    #[serde(flatten)]
    pub policy: PolicyView,
    pub from: PolicyFrom,
    /// The workspace's policy, if it binds: what that does not allow is refused, too.
    pub bound: Option<PolicyView>,
    /// What it may use, whoever said so.
    pub limits: NetworkLimits,
    pub secrets: Vec<AttachedView>,
    /// Names of secrets that it was given and that were removed since. It cannot use what is stored by such a name now,
    /// unless it is given that.
    pub revoked_secrets: Vec<String>,
    pub group: Option<GroupView>,
    pub counts: CountsView,
    /// In the mode `learn`: the list that would have allowed what was used.
    pub learned: Option<Vec<String>>,
}

/// What sandboxes may reach that say nothing about it themselves.
#[derive(Debug, Serialize, ToSchema)]
pub struct NetworkDefaultView {
    /// Absent: it is left to the workspace's default, and that to none at all.
    pub policy: Option<PolicyView>,
    /// Those that it sets.
    pub limits: NetworkLimits,
    /// Whether it is the most for all sandboxes of the workspace, whatever they say themselves.
    pub binding: bool,
}

/// Whom the sandbox is together with.
#[derive(Debug, Serialize, ToSchema)]
pub struct GroupView {
    pub name: String,
    /// By which the others reach it.
    pub names: Vec<String>,
}

/// A secret that the sandbox may use.
#[derive(Debug, Serialize, ToSchema)]
pub struct AttachedView {
    /// Also of the variable that holds the placeholder.
    pub name: String,
    /// What the guest has instead of the value.
    pub placeholder: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct CountsView {
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub connections_open: u64,
    pub connections_allowed: u64,
    pub connections_refused: u64,
    pub dns_queries: u64,
    pub dns_refused: u64,
    pub requests_refused: u64,
    /// Also frames that were dropped: damaged, too long, in fragments or under another's name.
    pub packets_refused: u64,
    /// Decisions that are no event, because there were too many at once.
    pub events_lost: u64,
}
