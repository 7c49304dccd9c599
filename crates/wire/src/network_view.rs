//! Network policies and counters in responses.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::network::{ModeName, NetworkLimits, TlsName};

/// The policy of a sandbox.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct PolicyView {
    pub mode: ModeName,
    pub allow: Vec<String>,
    /// Refused whatever else is allowed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
    pub tls: TlsName,
}

/// Where a policy comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PolicyFrom {
    /// The sandbox has a policy of its own.
    Sandbox,
    /// Its template's default applies.
    Template,
    /// Its workspace's default applies.
    Workspace,
    /// There is no policy and no default.
    #[default]
    Nothing,
}

/// A summary of what a sandbox may reach.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct NetworkSummary {
    #[serde(flatten)]
    pub policy: PolicyView,
    pub from: PolicyFrom,
    pub secrets: Vec<String>,
    pub group: Option<String>,
}

/// What a sandbox may reach, and the counters of its gateway.
#[derive(Debug, Serialize, ToSchema)]
pub struct NetworkView {
    #[serde(flatten)]
    pub policy: PolicyView,
    pub from: PolicyFrom,
    /// The workspace's binding policy, if there is one; it limits the sandbox's own policy.
    pub bound: Option<PolicyView>,
    /// The limits in effect.
    pub limits: NetworkLimits,
    pub secrets: Vec<AttachedView>,
    /// Names of its secrets that were removed since. A new secret of the same name must be attached again.
    pub revoked_secrets: Vec<String>,
    pub group: Option<GroupView>,
    pub counts: CountsView,
    /// In the mode `learn`: the allow-list of the destinations that were used.
    pub learned: Option<Vec<String>>,
}

/// What sandboxes without a policy of their own may reach.
#[derive(Debug, Serialize, ToSchema)]
pub struct NetworkDefaultView {
    /// If absent, the workspace's default applies, else nothing is allowed.
    pub policy: Option<PolicyView>,
    /// The limits that it sets.
    pub limits: NetworkLimits,
    /// Whether it limits all sandboxes of the workspace, whatever their own policy says.
    pub binding: bool,
}

/// The group of a sandbox.
#[derive(Debug, Serialize, ToSchema)]
pub struct GroupView {
    pub name: String,
    /// The names by which the group reaches it.
    pub names: Vec<String>,
}

/// A secret that a sandbox may use.
#[derive(Debug, Serialize, ToSchema)]
pub struct AttachedView {
    /// Its name, and that of the environment variable that holds the placeholder.
    pub name: String,
    /// What the guest sees instead of the value.
    pub placeholder: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CountsView {
    pub sent_bytes: u64,
    pub received_bytes: u64,
    #[serde(default)]
    #[schema(required)]
    pub connections_open: u64,
    pub connections_allowed: u64,
    pub connections_refused: u64,
    pub dns_queries: u64,
    pub dns_refused: u64,
    pub requests_refused: u64,
    /// Includes dropped frames: malformed, too long, fragmented, or with another sender's address.
    pub packets_refused: u64,
    /// Decisions without an event, because there were too many at once.
    pub events_lost: u64,
}
