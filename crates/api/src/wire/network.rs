//! What sandboxes may reach, what they reached, and secrets.

use sandling_engine::network::{AttachedSecret, GroupChange, Membership, NetworkCounts, NetworkEvent, SecretInfo};
use sandling_engine::{NetworkChange, NetworkDefault, NetworkSettings, NetworkWish, Sandbox};
use sandling_network::policy::{BadEntry, Entry, Mode, Policy, TlsMode};
use sandling_network::{EventKind, LimitWish, Limits, Verdict};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::error::ApiError;

/// What a sandbox may reach. Without it: what its template's or its workspace's default says, else nothing.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkRequest {
    /// Absent: `allow` if anything is listed, else `deny`.
    pub mode: Option<ModeName>,
    /// Names, `*.name`, addresses, networks and presets (`pypi`, `npm`, `crates`, `debian`, `github`), each with ports
    /// after a colon if other than usual.
    #[schema(max_items = 512, example = json!(["pypi", "example.com", "*.example.org:8443"]))]
    pub allow: Option<Vec<String>>,
    pub tls: Option<TlsName>,
    pub limits: Option<NetworkLimits>,
    /// Secrets of the workspace that the sandbox may use, by name. In a change: all that it has from then on.
    #[schema(max_items = 32)]
    pub secrets: Option<Vec<String>>,
    /// A group of sandboxes that reach each other by name. Empty in a change: it leaves the one it is in.
    #[schema(pattern = "^[a-z0-9-]{0,40}$", example = "crawl")]
    pub group: Option<String>,
    /// What the others of the group call it: `HOSTNAME.internal`. In any case `ID.internal`.
    #[schema(pattern = "^[a-z0-9-]{1,40}$", example = "database")]
    pub hostname: Option<String>,
}

/// How much of the network a sandbox may use. What is absent is the server's own limit, which is also the most of each.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkLimits {
    /// Bytes that it may send in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1024)]
    pub sent_bytes_per_second: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1024)]
    pub received_bytes_per_second: Option<u64>,
    /// Connections at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub connections: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub dns_queries_per_second: Option<u64>,
}

impl From<NetworkLimits> for LimitWish {
    fn from(limits: NetworkLimits) -> Self {
        Self {
            sent_bytes: limits.sent_bytes,
            sent_bytes_per_second: limits.sent_bytes_per_second,
            received_bytes_per_second: limits.received_bytes_per_second,
            connections: limits.connections,
            dns_queries_per_second: limits.dns_queries_per_second,
        }
    }
}

impl From<LimitWish> for NetworkLimits {
    fn from(limits: LimitWish) -> Self {
        Self {
            sent_bytes: limits.sent_bytes,
            sent_bytes_per_second: limits.sent_bytes_per_second,
            received_bytes_per_second: limits.received_bytes_per_second,
            connections: limits.connections,
            dns_queries_per_second: limits.dns_queries_per_second,
        }
    }
}

impl From<Limits> for NetworkLimits {
    fn from(limits: Limits) -> Self {
        Self {
            sent_bytes: Some(limits.bytes_out),
            sent_bytes_per_second: Some(limits.bytes_out_per_second),
            received_bytes_per_second: Some(limits.bytes_in_per_second),
            connections: Some(limits.connections as u64),
            dns_queries_per_second: Some(limits.dns_queries_per_second.into()),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ModeName {
    /// Nothing.
    Deny,
    /// What is listed.
    Allow,
    /// The public internet.
    Open,
    /// The same, and what was used is written down as a policy.
    Learn,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TlsName {
    /// TLS passes as it is, but for hosts that have a secret.
    Sealed,
    /// TLS is opened with an authority of the sandbox's own, and each request's host is looked at.
    Inspected,
}

/// Why a policy cannot be meant.
#[derive(Debug, thiserror::Error)]
pub enum BadNetwork {
    #[error(transparent)]
    Entry(#[from] BadEntry),
    #[error("the mode `deny` has no list; leave the mode out or say `allow`")]
    DenyWithList,
    #[error("a default gives no secrets; they are given to each sandbox by name")]
    DefaultWithSecrets,
    #[error("a hostname is one in a group; name the group, too")]
    HostnameWithoutGroup,
    #[error("a default puts sandboxes in no group; that is said for each of them")]
    DefaultWithGroup,
}

impl From<BadNetwork> for ApiError {
    fn from(error: BadNetwork) -> Self {
        Self::bad_request(error.to_string())
    }
}

impl NetworkRequest {
    /// What is wanted, with what the public clients call `egress_allowlist` on top.
    pub fn into_wish(self, allowlist: Option<Vec<String>>) -> Result<NetworkWish, BadNetwork> {
        let group = self.membership()?;
        let (secrets, limits) = (self.secrets.clone().unwrap_or_default(), self.limits.unwrap_or_default().into());
        let policy = if self.says_policy() || allowlist.is_some() {
            Some(self.policy(allowlist.unwrap_or_default())?)
        } else {
            None
        };
        Ok(NetworkWish { policy, limits, secrets, group })
    }

    pub(crate) fn into_change(self) -> Result<NetworkChange, BadNetwork> {
        let leaves = self.group.as_deref() == Some("") && self.hostname.is_none();
        let group = match self.membership()? {
            Some(membership) => Some(GroupChange::Join(membership)),
            None => leaves.then_some(GroupChange::Leave),
        };
        let (secrets, limits) = (self.secrets.clone(), self.limits.unwrap_or_default().into());
        let policy = if self.says_policy() { Some(self.policy(Vec::new())?) } else { None };
        Ok(NetworkChange { policy, limits, secrets, group })
    }

    pub(crate) fn into_default(self) -> Result<NetworkDefault, BadNetwork> {
        if self.secrets.is_some() {
            return Err(BadNetwork::DefaultWithSecrets);
        }
        if self.group.is_some() || self.hostname.is_some() {
            return Err(BadNetwork::DefaultWithGroup);
        }
        let NetworkChange { policy, limits, .. } = self.into_change()?;
        Ok(NetworkDefault { policy, limits })
    }

    fn membership(&self) -> Result<Option<Membership>, BadNetwork> {
        let hostname = self.hostname.clone();
        match self.group.as_deref() {
            None | Some("") if hostname.is_some() => Err(BadNetwork::HostnameWithoutGroup),
            None | Some("") => Ok(None),
            Some(group) => Ok(Some(Membership { group: group.to_owned(), hostname })),
        }
    }

    fn says_policy(&self) -> bool {
        self.mode.is_some() || self.allow.is_some() || self.tls.is_some()
    }

    fn policy(self, more: Vec<String>) -> Result<Policy, BadNetwork> {
        let listed = self.allow.unwrap_or_default().into_iter().chain(more);
        let allow = listed.map(|text| text.parse()).collect::<Result<Vec<Entry>, _>>()?;
        let mode = match self.mode {
            Some(ModeName::Deny) if !allow.is_empty() => return Err(BadNetwork::DenyWithList),
            Some(ModeName::Deny) => Mode::Deny,
            Some(ModeName::Allow) => Mode::Allow,
            Some(ModeName::Open) => Mode::Open,
            Some(ModeName::Learn) => Mode::Learn,
            None if allow.is_empty() => Mode::Deny,
            None => Mode::Allow,
        };
        let tls = match self.tls {
            Some(TlsName::Inspected) => TlsMode::Inspected,
            Some(TlsName::Sealed) | None => TlsMode::Sealed,
        };
        Ok(Policy { mode, allow, tls })
    }
}

/// The policy of a sandbox.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct PolicyView {
    mode: ModeName,
    allow: Vec<String>,
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
        Self { mode, allow: policy.allow.iter().map(ToString::to_string).collect(), tls }
    }
}

/// What a sandbox may reach, in a few words.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct NetworkSummary {
    #[serde(flatten)]
    policy: PolicyView,
    secrets: Vec<String>,
    group: Option<String>,
}

impl From<&NetworkSettings> for NetworkSummary {
    fn from(settings: &NetworkSettings) -> Self {
        let secrets = settings.secrets.iter().map(|secret| secret.name.clone()).collect();
        let group = settings.group.as_ref().map(|membership| membership.group.clone());
        Self { policy: (&settings.policy).into(), secrets, group }
    }
}

/// What a sandbox may reach, and what went through its gateway.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NetworkView {
    #[serde(flatten)]
    policy: PolicyView,
    /// What it may use, whoever said so.
    limits: NetworkLimits,
    secrets: Vec<AttachedView>,
    group: Option<GroupView>,
    counts: CountsView,
    /// In the mode `learn`: the list that would have allowed what was used.
    learned: Option<Vec<String>>,
}

/// What new sandboxes may reach that say nothing about it themselves.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NetworkDefaultView {
    /// Absent: it is left to the workspace's default, and that to none at all.
    policy: Option<PolicyView>,
    /// Those that it sets.
    limits: NetworkLimits,
}

impl From<NetworkDefault> for NetworkDefaultView {
    fn from(default: NetworkDefault) -> Self {
        Self { policy: default.policy.as_ref().map(PolicyView::from), limits: default.limits.into() }
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
    packets_refused: u64,
}

impl NetworkView {
    pub(crate) fn of(sandbox: &Sandbox) -> Self {
        let settings = sandbox.network();
        let attached = |AttachedSecret { name, placeholder }| AttachedView { name, placeholder };
        let learned = sandbox.learned_policy().filter(|_| settings.policy.mode == Mode::Learn);
        Self {
            policy: (&settings.policy).into(),
            limits: sandbox.network_limits().into(),
            secrets: settings.secrets.into_iter().map(attached).collect(),
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
        }
    }
}

/// One decision of a sandbox's gateway.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NetworkEventView {
    /// Rises from event to event.
    pub(crate) number: u64,
    time: String,
    /// `dns`, `connect`, `accept`, `name`, `request`, `close` or `packet`.
    kind: EventName,
    name: Option<String>,
    address: Option<String>,
    port: Option<u16>,
    verdict: VerdictName,
    /// Why it was refused, or why it failed, for people.
    reason: Option<String>,
    /// The same for programs.
    code: Option<String>,
    sent_bytes: u64,
    received_bytes: u64,
    /// Names of secrets that were placed into a request.
    secrets: Vec<String>,
}

#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum EventName {
    Dns,
    Connect,
    Accept,
    Name,
    Request,
    Close,
    Packet,
}

#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum VerdictName {
    Allowed,
    Refused,
    Failed,
}

impl From<NetworkEvent> for NetworkEventView {
    fn from(NetworkEvent { number, event }: NetworkEvent) -> Self {
        let (verdict, reason, code) = match event.verdict {
            Verdict::Allowed => (VerdictName::Allowed, None, None),
            Verdict::Refused(refusal) => (VerdictName::Refused, Some(refusal.to_string()), code(&refusal)),
            Verdict::Failed(failure) => {
                let code = code(&failure);
                (VerdictName::Failed, code.as_ref().map(|code| code.replace('_', " ")), code)
            }
        };
        Self {
            number,
            time: event.at.to_string(),
            kind: match event.kind {
                EventKind::Dns => EventName::Dns,
                EventKind::Connect => EventName::Connect,
                EventKind::Accept => EventName::Accept,
                EventKind::Name => EventName::Name,
                EventKind::Request => EventName::Request,
                EventKind::Close => EventName::Close,
                EventKind::Packet => EventName::Packet,
            },
            name: event.name.map(|name| name.to_string()),
            address: event.address.map(|address| address.to_string()),
            port: event.port,
            verdict,
            reason,
            code,
            sent_bytes: event.bytes_out,
            received_bytes: event.bytes_in,
            secrets: event.secrets,
        }
    }
}

/// The stable name of a reason: a refusal's is under `code`, a failure is nothing else.
pub(crate) fn code(reason: &impl Serialize) -> Option<String> {
    match serde_json::to_value(reason).ok()? {
        Value::String(code) => Some(code),
        Value::Object(fields) => fields.get("code")?.as_str().map(str::to_owned),
        _ => None,
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NetworkEventList {
    pub(crate) events: Vec<NetworkEventView>,
}

/// A secret to be stored.
// No `Debug`: it would print the value.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetSecret {
    /// Visible ASCII characters.
    #[schema(min_length = 1, max_length = 8192)]
    pub value: String,
    /// Names and `*.name` to which requests may carry it.
    #[schema(min_items = 1, example = json!(["api.example.com"]))]
    pub hosts: Vec<String>,
}

impl SetSecret {
    pub(crate) fn hosts(&self) -> Result<Vec<Entry>, BadNetwork> {
        Ok(self.hosts.iter().map(|host| host.parse()).collect::<Result<_, _>>()?)
    }
}

/// A secret, without its value.
#[derive(Debug, Serialize, ToSchema)]
pub struct SecretView {
    name: String,
    hosts: Vec<String>,
    created_at: String,
}

impl From<SecretInfo> for SecretView {
    fn from(info: SecretInfo) -> Self {
        Self {
            name: info.name,
            hosts: info.hosts.iter().map(ToString::to_string).collect(),
            created_at: info.created_at.to_string(),
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub struct SecretList {
    pub secrets: Vec<SecretView>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(body: Value, allowlist: &[&str]) -> Result<NetworkWish, BadNetwork> {
        let request: NetworkRequest = serde_json::from_value(body).unwrap();
        let allowlist = (!allowlist.is_empty()).then(|| allowlist.iter().map(|name| (*name).to_owned()).collect());
        request.into_wish(allowlist)
    }

    #[test]
    fn a_plain_list_of_names_is_a_policy() {
        let policy = wish(serde_json::json!({}), &["example.com", "pypi"]).unwrap().policy.unwrap();
        assert_eq!((policy.mode, policy.allow.len()), (Mode::Allow, 2));
        assert_eq!(wish(serde_json::json!({"mode": "deny"}), &[]).unwrap().policy, Some(Policy::default()));
        assert_eq!(wish(serde_json::json!({"allow": []}), &[]).unwrap().policy, Some(Policy::default()));
    }

    #[test]
    fn who_says_nothing_leaves_it_to_the_defaults() {
        let request = serde_json::json!({"secrets": ["KEY"], "limits": {"connections": 3}});
        let wish = wish(request.clone(), &[]).unwrap();
        assert_eq!((wish.policy, wish.limits.connections), (None, Some(3)));
        let default = serde_json::from_value::<NetworkRequest>(request).unwrap().into_default();
        assert!(matches!(default, Err(BadNetwork::DefaultWithSecrets)));
        assert!(serde_json::from_value::<NetworkRequest>(serde_json::json!({"limits": {"speed": 3}})).is_err());
    }

    #[test]
    fn what_cannot_be_meant_is_refused_in_a_sentence() {
        for body in [
            serde_json::json!({"allow": ["*"]}),
            serde_json::json!({"allow": ["::1"]}),
            serde_json::json!({"mode": "deny", "allow": ["example.com"]}),
        ] {
            assert!(wish(body.clone(), &[]).is_err(), "{body}");
        }
    }

    #[test]
    fn a_change_leaves_alone_what_it_does_not_name() {
        let change = |body| serde_json::from_value::<NetworkRequest>(body).unwrap().into_change().unwrap();
        let secrets_only = change(serde_json::json!({"secrets": []}));
        assert!(secrets_only.policy.is_none() && secrets_only.secrets.is_some());
        assert_eq!(change(serde_json::json!({"mode": "open"})).policy.unwrap().mode, Mode::Open);
    }

    #[test]
    fn a_group_is_joined_by_its_name_and_left_by_none() {
        let change = |body| serde_json::from_value::<NetworkRequest>(body).unwrap().into_change();
        let joins = change(serde_json::json!({"group": "crawl", "hostname": "db"})).unwrap();
        assert!(matches!(joins.group, Some(GroupChange::Join(joined)) if joined.group == "crawl"));
        let leaves = change(serde_json::json!({"group": ""})).unwrap();
        assert!(matches!(leaves.group, Some(GroupChange::Leave)));
        assert!(change(serde_json::json!({})).unwrap().group.is_none());
        assert!(change(serde_json::json!({"hostname": "db"})).is_err());
    }

    #[test]
    fn an_event_has_a_code_and_a_sentence() {
        use sandling_network::policy::{Range, Refusal};
        let event = sandling_network::Event::new(EventKind::Connect, Verdict::Refused(Refusal::Range(Range::Private)));
        let view = serde_json::to_value(NetworkEventView::from(NetworkEvent { number: 1, event })).unwrap();
        assert_eq!((view["verdict"].as_str(), view["code"].as_str()), (Some("refused"), Some("range")));
        assert!(view["reason"].as_str().unwrap().contains("private"), "{view}");
    }
}
