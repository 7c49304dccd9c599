//! What sandboxes may reach, and what went through their gateways, as it is shown.

use sandling_engine::network::{InForce, NetworkCounts, NetworkSettings, PolicySource};
use sandling_engine::{NetworkDefault, Sandbox, SandboxInfo};
use sandling_network::policy::{Entry, Mode, Policy, TlsMode};
use serde::Serialize;
use utoipa::ToSchema;

use super::network::{ModeName, NetworkLimits, TlsName};

/// The policy of a sandbox.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct PolicyView {
    mode: ModeName,
    allow: Vec<String>,
    /// What is refused whatever else is allowed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    deny: Vec<String>,
    tls: TlsName,
}

impl From<&Policy> for PolicyView {
    fn from(policy: &Policy) -> Self {
        let mode = match policy.mode {
            Mode::Deny => ModeName::Deny,
            Mode::Allow => ModeName::Allow,
            Mode::Open => ModeName::Open,
            Mode::Learn => ModeName::Learn,
        };
        let tls = match policy.tls {
            TlsMode::Sealed => TlsName::Sealed,
            TlsMode::Inspected => TlsName::Inspected,
        };
        let texts = |entries: &[Entry]| entries.iter().map(ToString::to_string).collect();
        Self { mode, allow: texts(&policy.allow), deny: texts(&policy.deny), tls }
    }
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

impl From<PolicySource> for PolicyFrom {
    fn from(source: PolicySource) -> Self {
        match source {
            PolicySource::Sandbox => Self::Sandbox,
            PolicySource::Template => Self::Template,
            PolicySource::Workspace => Self::Workspace,
            PolicySource::Nothing => Self::Nothing,
        }
    }
}

/// What a sandbox may reach, in a few words.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct NetworkSummary {
    #[serde(flatten)]
    policy: PolicyView,
    from: PolicyFrom,
    secrets: Vec<String>,
    group: Option<String>,
}

/// Those of a sandbox's secrets that were not removed since.
fn usable(settings: &NetworkSettings, in_force: &InForce) -> impl Iterator<Item = AttachedView> {
    let attached = settings.secrets.iter().filter(|secret| !in_force.revoked.contains(&secret.name));
    attached.map(|secret| AttachedView { name: secret.name.clone(), placeholder: secret.placeholder.clone() })
}

impl From<&SandboxInfo> for NetworkSummary {
    fn from(info: &SandboxInfo) -> Self {
        let (settings, in_force) = (&info.network, &info.in_force);
        let secrets = usable(settings, in_force).map(|secret| secret.name).collect();
        let group = settings.group.as_ref().map(|membership| membership.group.clone());
        Self { policy: (&in_force.policy).into(), from: in_force.from.into(), secrets, group }
    }
}

/// What a sandbox may reach, and what went through its gateway.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NetworkView {
    #[serde(flatten)]
    policy: PolicyView,
    from: PolicyFrom,
    /// The workspace's policy, if it binds: what that does not allow is refused, too.
    bound: Option<PolicyView>,
    /// What it may use, whoever said so.
    limits: NetworkLimits,
    secrets: Vec<AttachedView>,
    /// Names of secrets that it was given and that were removed since. It cannot use what is stored by such a name now,
    /// unless it is given that.
    revoked_secrets: Vec<String>,
    group: Option<GroupView>,
    counts: CountsView,
    /// In the mode `learn`: the list that would have allowed what was used.
    learned: Option<Vec<String>>,
}

/// What sandboxes may reach that say nothing about it themselves.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NetworkDefaultView {
    /// Absent: it is left to the workspace's default, and that to none at all.
    policy: Option<PolicyView>,
    /// Those that it sets.
    limits: NetworkLimits,
    /// Whether it is the most for all sandboxes of the workspace, whatever they say themselves.
    binding: bool,
}

impl From<NetworkDefault> for NetworkDefaultView {
    fn from(default: NetworkDefault) -> Self {
        Self {
            policy: default.policy.as_ref().map(PolicyView::from),
            limits: default.limits.into(),
            binding: default.binding == Some(true),
        }
    }
}

/// Whom the sandbox is together with.
#[derive(Debug, Serialize, ToSchema)]
struct GroupView {
    name: String,
    /// By which the others reach it.
    names: Vec<String>,
}

/// A secret that the sandbox may use.
#[derive(Debug, Serialize, ToSchema)]
struct AttachedView {
    /// Also of the variable that holds the placeholder.
    name: String,
    /// What the guest has instead of the value.
    placeholder: String,
}

#[derive(Debug, Serialize, ToSchema)]
struct CountsView {
    sent_bytes: u64,
    received_bytes: u64,
    connections_open: u64,
    connections_allowed: u64,
    connections_refused: u64,
    dns_queries: u64,
    dns_refused: u64,
    requests_refused: u64,
    /// Also frames that were dropped: damaged, too long, in fragments or under another's name.
    packets_refused: u64,
    /// Decisions that are no event, because there were too many at once.
    events_lost: u64,
}

impl NetworkView {
    pub(crate) fn of(sandbox: &Sandbox) -> Self {
        let (settings, in_force) = (sandbox.network(), sandbox.network_in_force());
        let learned = (in_force.policy.mode == Mode::Learn).then(|| sandbox.learned_policy());
        Self {
            policy: (&in_force.policy).into(),
            from: in_force.from.into(),
            bound: in_force.bound.as_ref().map(PolicyView::from),
            limits: in_force.limits.into(),
            secrets: usable(&settings, &in_force).collect(),
            revoked_secrets: in_force.revoked,
            group: settings
                .group
                .map(|membership| GroupView { names: membership.names(sandbox.id()), name: membership.group }),
            counts: sandbox.network_counts().into(),
            learned: learned.map(|policy| policy.allow.iter().map(ToString::to_string).collect()),
        }
    }
}

impl From<NetworkCounts> for CountsView {
    fn from(counts: NetworkCounts) -> Self {
        Self {
            sent_bytes: counts.sent_bytes,
            received_bytes: counts.received_bytes,
            connections_open: counts.connections_open,
            connections_allowed: counts.connections_allowed,
            connections_refused: counts.connections_refused,
            dns_queries: counts.dns_queries,
            dns_refused: counts.dns_refused,
            requests_refused: counts.requests_refused,
            packets_refused: counts.packets_refused,
            events_lost: counts.events_lost,
        }
    }
}
