//! What sandboxes may reach, as clients say it.

use sandling_engine::network::{Before, GroupChange, Membership};
use sandling_engine::{NetworkChange, NetworkDefaultChange, NetworkWish};
use sandling_network::policy::{BadEntry, Entry, Mode, Policy, PolicyChange, Target, TlsMode};
use sandling_network::{LimitRequest, Limits};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::ApiError;

/// What a sandbox may reach. Without it, it follows its template's default, then its workspace's; else nothing.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkRequest {
    /// Absent: `allow` if anything is listed, `deny` if the list is empty.
    pub mode: Option<ModeName>,
    /// Names, `*.name`, addresses, networks and presets (`pypi`, `npm`, `crates`, `debian`, `github`), each with ports
    /// after a colon if other than usual.
    #[schema(max_items = 512, example = json!(["pypi", "example.com", "*.example.org:8443"]))]
    pub allow: Option<Vec<String>>,
    /// Addresses and networks, with ports if not all, that are refused whatever else is allowed.
    #[schema(max_items = 512, example = json!(["203.0.113.0/24"]))]
    pub deny: Option<Vec<String>>,
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
    /// Of a workspace's default only: whether it is the most that any of its sandboxes may reach and use, whatever they
    /// and their templates say.
    pub binding: Option<bool>,
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

impl From<NetworkLimits> for LimitRequest {
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

impl From<LimitRequest> for NetworkLimits {
    fn from(limits: LimitRequest) -> Self {
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
    #[error("{0:?} cannot be denied: only addresses and networks can, and names are reached if they are listed")]
    DenyName(String),
    #[error("a default gives no secrets; they are given to each sandbox by name")]
    DefaultWithSecrets,
    #[error("a hostname is one in a group; name the group, too")]
    HostnameWithoutGroup,
    #[error("a default puts sandboxes in no group; that is said for each of them")]
    DefaultWithGroup,
    #[error("a sandbox binds nobody; only a workspace's default does")]
    SandboxBinds,
}

impl From<BadNetwork> for ApiError {
    fn from(error: BadNetwork) -> Self {
        Self::bad_request(error.to_string())
    }
}

impl NetworkRequest {
    /// What is wanted, with what the public clients call `egress_allowlist` on top.
    pub fn into_wish(self, allowlist: Option<Vec<String>>) -> Result<NetworkWish, BadNetwork> {
        self.binds_nobody()?;
        let group = self.membership()?;
        let (secrets, limits) = (self.secrets.clone().unwrap_or_default(), self.limits.unwrap_or_default().into());
        let policy = self.policy(allowlist)?;
        let policy = (!policy.is_nothing()).then(|| policy.onto(&Policy::default()));
        Ok(NetworkWish { policy, limits, secrets, group })
    }

    pub(crate) fn into_change(self) -> Result<NetworkChange, BadNetwork> {
        self.binds_nobody()?;
        let leaves = self.group.as_deref() == Some("") && self.hostname.is_none();
        let group = match self.membership()? {
            Some(membership) => Some(GroupChange::Join(membership)),
            None => leaves.then_some(GroupChange::Leave),
        };
        let (secrets, limits) = (self.secrets.clone(), self.limits.unwrap_or_default().into());
        let policy = self.policy(None)?;
        Ok(NetworkChange { before: Before::Stays, policy, limits, secrets, group })
    }

    pub(crate) fn into_default(mut self) -> Result<NetworkDefaultChange, BadNetwork> {
        if self.secrets.is_some() {
            return Err(BadNetwork::DefaultWithSecrets);
        }
        if self.group.is_some() || self.hostname.is_some() {
            return Err(BadNetwork::DefaultWithGroup);
        }
        let binding = self.binding.take();
        let NetworkChange { policy, limits, .. } = self.into_change()?;
        Ok(NetworkDefaultChange { policy, limits, binding })
    }

    fn binds_nobody(&self) -> Result<(), BadNetwork> {
        self.binding.map_or(Ok(()), |_| Err(BadNetwork::SandboxBinds))
    }

    fn membership(&self) -> Result<Option<Membership>, BadNetwork> {
        let hostname = self.hostname.clone();
        match self.group.as_deref() {
            None | Some("") if hostname.is_some() => Err(BadNetwork::HostnameWithoutGroup),
            None | Some("") => Ok(None),
            Some(group) => Ok(Some(Membership { group: group.to_owned(), hostname })),
        }
    }

    fn policy(self, more: Option<Vec<String>>) -> Result<PolicyChange, BadNetwork> {
        let listed = match (self.allow, more) {
            (None, None) => None,
            (allow, more) => Some(allow.into_iter().chain(more).flatten()),
        };
        let allow: Option<Vec<Entry>> = listed.map(|texts| texts.map(|text| text.parse()).collect()).transpose()?;
        let deny = self.deny.map(|texts| texts.iter().map(|text| denied(text)).collect()).transpose()?;
        let mode = match self.mode {
            Some(ModeName::Deny) if allow.as_ref().is_some_and(|allow| !allow.is_empty()) => {
                return Err(BadNetwork::DenyWithList);
            }
            Some(ModeName::Deny) => Some(Mode::Deny),
            Some(ModeName::Allow) => Some(Mode::Allow),
            Some(ModeName::Open) => Some(Mode::Open),
            Some(ModeName::Learn) => Some(Mode::Learn),
            None => None,
        };
        let tls = self.tls.map(|tls| match tls {
            TlsName::Inspected => TlsMode::Inspected,
            TlsName::Sealed => TlsMode::Sealed,
        });
        Ok(PolicyChange { mode, allow, deny, tls })
    }
}

/// One line of a deny list.
pub(crate) fn denied(text: &str) -> Result<Entry, BadNetwork> {
    let entry: Entry = text.parse()?;
    match entry.target {
        Target::Network(_) => Ok(entry),
        _ => Err(BadNetwork::DenyName(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

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
    fn only_a_default_binds() {
        let request = |body| serde_json::from_value::<NetworkRequest>(body).unwrap();
        let body = || serde_json::json!({"allow": ["pypi"], "binding": true});
        assert_eq!(request(body()).into_default().unwrap().binding, Some(true));
        assert_eq!(request(serde_json::json!({"allow": ["pypi"]})).into_default().unwrap().binding, None);
        assert!(matches!(request(body()).into_change(), Err(BadNetwork::SandboxBinds)));
        assert!(matches!(request(body()).into_wish(None), Err(BadNetwork::SandboxBinds)));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_in_a_sentence() {
        for body in [
            serde_json::json!({"allow": ["*"]}),
            serde_json::json!({"allow": ["::1"]}),
            serde_json::json!({"mode": "deny", "allow": ["example.com"]}),
            serde_json::json!({"mode": "open", "deny": ["example.com"]}),
        ] {
            assert!(wish(body.clone(), &[]).is_err(), "{body}");
        }
    }

    #[test]
    fn parts_of_what_is_open_can_be_denied() {
        let body = serde_json::json!({"mode": "open", "deny": ["203.0.113.0/24", "198.51.100.1:22"]});
        let policy = wish(body, &[]).unwrap().policy.unwrap();
        assert_eq!((policy.mode, policy.deny.len()), (Mode::Open, 2));
    }

    #[test]
    fn a_change_leaves_alone_what_it_does_not_name() {
        let change = |body| serde_json::from_value::<NetworkRequest>(body).unwrap().into_change().unwrap();
        let secrets_only = change(serde_json::json!({"secrets": []}));
        assert!(secrets_only.policy.is_nothing() && secrets_only.secrets.is_some());
        let opened = change(serde_json::json!({"mode": "open"})).policy;
        assert_eq!(opened, PolicyChange { mode: Some(Mode::Open), ..PolicyChange::default() });
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
}
