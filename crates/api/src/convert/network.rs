//! Network policies in requests.

use sandling_engine::network::{Before, GroupChange, Membership};
use sandling_engine::{NetworkChange, NetworkDefaultChange, NetworkSpec};
use sandling_network::BadPlacement;
use sandling_network::policy::{BadEntry, Entry, Mode, Policy, PolicyChange, Target, TlsMode};
use sandling_network::{LimitRequest, Limits};
use sandling_wire::{ModeName, NetworkLimits, NetworkRequest, TlsName};

use super::{IntoEngine, IntoWire};
use crate::error::{ApiError, convert_mistakes};

into_engine!(struct NetworkLimits => LimitRequest {
    sent_bytes, sent_bytes_per_second, received_bytes_per_second, connections, dns_queries_per_second
});
into_wire!(struct LimitRequest => NetworkLimits {
    sent_bytes, sent_bytes_per_second, received_bytes_per_second, connections, dns_queries_per_second
});
into_engine!(enum ModeName => Mode { Deny, Allow, Open, Learn });
into_engine!(enum TlsName => TlsMode { Sealed, Inspected });

impl IntoWire for Limits {
    type Wire = NetworkLimits;

    fn into_wire(self) -> NetworkLimits {
        NetworkLimits {
            sent_bytes: Some(self.bytes_out),
            sent_bytes_per_second: Some(self.bytes_out_per_second),
            received_bytes_per_second: Some(self.bytes_in_per_second),
            connections: Some(self.connections as u64),
            dns_queries_per_second: Some(self.dns_queries_per_second.into()),
        }
    }
}

/// Why a policy is invalid.
#[derive(Debug, thiserror::Error)]
pub enum BadNetwork {
    #[error(transparent)]
    Entry(#[from] BadEntry),
    #[error(transparent)]
    Placement(#[from] BadPlacement),
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

convert_mistakes!(BadNetwork);

/// The network settings of a new sandbox.
pub fn network_spec(request: NetworkRequest) -> Result<NetworkSpec, BadNetwork> {
    binds_nobody(&request)?;
    let group = membership(&request)?;
    let (secrets, limits) =
        (request.secrets.clone().unwrap_or_default(), request.limits.unwrap_or_default().into_engine());
    let policy = policy_change(request)?;
    let policy = (!policy.is_nothing()).then(|| policy.onto(&Policy::default()));
    Ok(NetworkSpec { policy, limits, secrets, group, ..NetworkSpec::default() })
}

pub(crate) fn network_change(request: NetworkRequest) -> Result<NetworkChange, BadNetwork> {
    binds_nobody(&request)?;
    let leaves = request.group.as_deref() == Some("") && request.hostname.is_none();
    let group = match membership(&request)? {
        Some(membership) => Some(GroupChange::Join(membership)),
        None => leaves.then_some(GroupChange::Leave),
    };
    let (secrets, limits) = (request.secrets.clone(), request.limits.unwrap_or_default().into_engine());
    let policy = policy_change(request)?;
    Ok(NetworkChange { before: Before::Stays, policy, limits, secrets, group, header_rules: None })
}

pub(crate) fn network_default(mut request: NetworkRequest) -> Result<NetworkDefaultChange, BadNetwork> {
    if request.secrets.is_some() {
        return Err(BadNetwork::DefaultWithSecrets);
    }
    if request.group.is_some() || request.hostname.is_some() {
        return Err(BadNetwork::DefaultWithGroup);
    }
    let binding = request.binding.take();
    let NetworkChange { policy, limits, .. } = network_change(request)?;
    Ok(NetworkDefaultChange { policy, limits, binding })
}

fn binds_nobody(request: &NetworkRequest) -> Result<(), BadNetwork> {
    request.binding.map_or(Ok(()), |_| Err(BadNetwork::SandboxBinds))
}

fn membership(request: &NetworkRequest) -> Result<Option<Membership>, BadNetwork> {
    let hostname = request.hostname.clone();
    match request.group.as_deref() {
        None | Some("") if hostname.is_some() => Err(BadNetwork::HostnameWithoutGroup),
        None | Some("") => Ok(None),
        Some(group) => Ok(Some(Membership { group: group.to_owned(), hostname })),
    }
}

fn policy_change(request: NetworkRequest) -> Result<PolicyChange, BadNetwork> {
    let allow: Option<Vec<Entry>> =
        request.allow.map(|texts| texts.iter().map(|text| text.parse()).collect()).transpose()?;
    let deny = request.deny.map(|texts| texts.iter().map(|text| denied(text)).collect()).transpose()?;
    let mode = request.mode.map(IntoEngine::into_engine);
    if mode == Some(Mode::Deny) && allow.as_ref().is_some_and(|allow| !allow.is_empty()) {
        return Err(BadNetwork::DenyWithList);
    }
    let tls = request.tls.map(IntoEngine::into_engine);
    Ok(PolicyChange { mode, allow, deny, tls })
}

/// Parses an entry of a deny list.
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

    fn request(body: Value) -> NetworkRequest {
        serde_json::from_value(body).unwrap()
    }

    fn spec(body: Value) -> Result<NetworkSpec, BadNetwork> {
        network_spec(request(body))
    }

    #[test]
    fn a_plain_list_of_names_is_a_policy() {
        let policy = spec(serde_json::json!({"allow": ["example.com", "pypi"]})).unwrap().policy.unwrap();
        assert_eq!((policy.mode, policy.allow.len()), (Mode::Allow, 2));
        assert_eq!(spec(serde_json::json!({"mode": "deny"})).unwrap().policy, Some(Policy::default()));
        assert_eq!(spec(serde_json::json!({"allow": []})).unwrap().policy, Some(Policy::default()));
    }

    #[test]
    fn who_says_nothing_leaves_it_to_the_defaults() {
        let body = serde_json::json!({"secrets": ["KEY"], "limits": {"connections": 3}});
        let spec = spec(body.clone()).unwrap();
        assert_eq!((spec.policy, spec.limits.connections), (None, Some(3)));
        let default = network_default(request(body));
        assert!(matches!(default, Err(BadNetwork::DefaultWithSecrets)));
        assert!(serde_json::from_value::<NetworkRequest>(serde_json::json!({"limits": {"speed": 3}})).is_err());
    }

    #[test]
    fn only_a_default_binds() {
        let body = || serde_json::json!({"allow": ["pypi"], "binding": true});
        assert_eq!(network_default(request(body())).unwrap().binding, Some(true));
        assert_eq!(network_default(request(serde_json::json!({"allow": ["pypi"]}))).unwrap().binding, None);
        assert!(matches!(network_change(request(body())), Err(BadNetwork::SandboxBinds)));
        assert!(matches!(spec(body()), Err(BadNetwork::SandboxBinds)));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_in_a_sentence() {
        for body in [
            serde_json::json!({"allow": ["*"]}),
            serde_json::json!({"allow": ["::1"]}),
            serde_json::json!({"mode": "deny", "allow": ["example.com"]}),
            serde_json::json!({"mode": "open", "deny": ["example.com"]}),
        ] {
            assert!(spec(body.clone()).is_err(), "{body}");
        }
    }

    #[test]
    fn parts_of_what_is_open_can_be_denied() {
        let body = serde_json::json!({"mode": "open", "deny": ["203.0.113.0/24", "198.51.100.1:22"]});
        let policy = spec(body).unwrap().policy.unwrap();
        assert_eq!((policy.mode, policy.deny.len()), (Mode::Open, 2));
    }

    #[test]
    fn a_change_leaves_alone_what_it_does_not_name() {
        let change = |body| network_change(request(body)).unwrap();
        let secrets_only = change(serde_json::json!({"secrets": []}));
        assert!(secrets_only.policy.is_nothing() && secrets_only.secrets.is_some());
        let opened = change(serde_json::json!({"mode": "open"})).policy;
        assert_eq!(opened, PolicyChange { mode: Some(Mode::Open), ..PolicyChange::default() });
    }

    #[test]
    fn a_group_is_joined_by_its_name_and_left_by_none() {
        let change = |body| network_change(request(body));
        let joins = change(serde_json::json!({"group": "crawl", "hostname": "db"})).unwrap();
        assert!(matches!(joins.group, Some(GroupChange::Join(joined)) if joined.group == "crawl"));
        let leaves = change(serde_json::json!({"group": ""})).unwrap();
        assert!(matches!(leaves.group, Some(GroupChange::Leave)));
        assert!(change(serde_json::json!({})).unwrap().group.is_none());
        assert!(change(serde_json::json!({"hostname": "db"})).is_err());
    }
}
