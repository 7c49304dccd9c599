//! Network policies in E2B's format, translated to the engine's.
//!
//! E2B allows all traffic by default, Sandling none. So `allowOut` is an allow-list, and only `0.0.0.0/0` in it opens
//! the internet. `denyOut` removes parts of an open internet. As with E2B, an entry of `allowOut` wins over `denyOut`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use axum::routing::put;
use sandling_engine::network::Before;
use sandling_engine::{NetworkChange, NetworkSpec};
use sandling_network::policy::{Entry, Mode, Policy, PolicyChange};
use sandling_network::{BadHeaderRule, HeaderRules, HeadersByHost};
use sandling_wire::NetworkRequest;
use serde::Deserialize;
use serde_json::{Value, json};

use super::caller::SandboxCall;
use crate::convert::network::{denied, network_spec};
use crate::e2b::refusal::unsupported;
use crate::e2b::settings::Settings;
use crate::prelude::*;
use crate::preview::proxy;

const ALL: &str = "0.0.0.0/0";
const MOST_HTTPS_PORTS: usize = 100;

pub(super) fn router() -> Router<Arc<App>> {
    Router::new().route("/sandboxes/{id}/network", put(update))
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Network {
    allow_out: Vec<String>,
    deny_out: Vec<String>,
    dns_servers: Vec<String>,
    egress_proxy: Value,
    rules: BTreeMap<String, Vec<Rule>>,
    mask_request_host: Option<String>,
    https_ports: BTreeSet<u16>,
    pub(super) allow_public_traffic: Option<bool>,
}

impl Network {
    /// What this request asks for, or an error for unsupported options. `usual` returns the default policy, for
    /// requests that set none.
    pub(super) fn spec(self, usual: impl FnOnce() -> Result<Policy, ApiError>) -> Result<NetworkSpec, ApiError> {
        let header_rules = self.header_rules()?;
        Ok(NetworkSpec { policy: self.policy(usual)?, header_rules, ..NetworkSpec::default() })
    }

    fn policy(self, usual: impl FnOnce() -> Result<Policy, ApiError>) -> Result<Option<Policy>, ApiError> {
        if !self.dns_servers.is_empty() || !self.egress_proxy.is_null() {
            return Err(unsupported(
                "DNS servers and a proxy are the server's; leave dns_servers and egress_proxy out",
            ));
        }
        let parts: Vec<&String> = self.deny_out.iter().filter(|entry| !is_all(entry)).collect();
        // IPv6 is always blocked by the gateway, so denying it needs no entry.
        let parts = parts.into_iter().filter(|entry| entry.parse::<Ipv6Addr>().is_err() && !is_network_of_ipv6(entry));
        let deny = parts.map(|entry| denied(entry)).collect::<Result<Vec<_>, _>>()?;
        let (all, listed): (Vec<_>, Vec<_>) = self.allow_out.into_iter().partition(|entry| is_all(entry));
        let is_resolver = |entry: &&String| entry.parse::<Entry>().is_ok_and(|entry| entry.names_resolver());
        if let Some(entry) = listed.iter().find(is_resolver) {
            return Err(unsupported(&format!(
                "{entry} is a public DNS resolver, which no sandbox can reach; leave it out of allow_out"
            )));
        }
        if !all.is_empty() {
            if !deny.is_empty() && !listed.is_empty() {
                return Err(unsupported(
                    "allow_out has all of the internet and more, and deny_out takes parts of it: leave either out",
                ));
            }
            return Ok(Some(Policy { deny, ..Policy::of(Mode::Open) }));
        }
        if listed.is_empty() && !deny.is_empty() && !self.deny_out.iter().any(|entry| is_all(entry)) {
            let mut policy = usual()?;
            policy.deny.extend(deny);
            return Ok(Some(policy));
        }
        let allow = Some(listed).filter(|listed| !listed.is_empty() || !self.deny_out.is_empty());
        Ok(network_spec(NetworkRequest { allow, ..NetworkRequest::default() })?.policy)
    }

    /// The change that an update makes.
    fn change(self, usual: impl FnOnce() -> Result<Policy, ApiError>) -> Result<NetworkChange, ApiError> {
        let spec = self.spec(usual)?;
        let change = match spec.policy {
            // It replaces the policy, but keeps the parts that E2B's format cannot express.
            Some(policy) => {
                NetworkChange { policy: PolicyChange { tls: None, ..policy.into() }, ..NetworkChange::default() }
            }
            // An empty update goes back to the default, as with E2B.
            None => NetworkChange { before: Before::Forgotten, ..NetworkChange::default() },
        };
        Ok(NetworkChange { header_rules: Some(spec.header_rules), ..change })
    }

    /// The headers that rules set. Of several rules of one host, the last wins.
    fn header_rules(&self) -> Result<HeaderRules, ApiError> {
        let mut rules = HeadersByHost::new();
        for (host, rule) in self.rules.iter().flat_map(|(host, rules)| rules.iter().map(move |rule| (host, rule))) {
            let headers = rule.transform.iter().flat_map(|transform| transform.headers.clone());
            rules.entry(host.clone()).or_default().extend(headers);
        }
        rules.try_into().map_err(|error: BadHeaderRule| ApiError::bad_request(error.to_string()))
    }

    /// The host that the sandbox's servers shall see.
    pub(super) fn request_host(&self) -> Result<Option<String>, ApiError> {
        let Some(host) = self.mask_request_host.as_deref() else { return Ok(None) };
        if proxy::seen_host(Some(host), u16::MAX).is_none() {
            let message = format!("mask_request_host {host:?} is no host name, with ${{PORT}} for the port if needed");
            return Err(ApiError::bad_request(message));
        }
        Ok(Some(host.to_owned()))
    }

    /// The ports whose servers speak HTTPS.
    pub(super) fn https_ports(&self) -> Result<BTreeSet<u16>, ApiError> {
        if self.https_ports.contains(&0) || self.https_ports.len() > MOST_HTTPS_PORTS {
            let message = format!("https_ports takes at most {MOST_HTTPS_PORTS} ports, from 1 to {}", u16::MAX);
            return Err(ApiError::bad_request(message));
        }
        Ok(self.https_ports.clone())
    }

    /// The same, restricted to the allow-list.
    pub(super) fn without_internet(mut self) -> Self {
        self.deny_out.push(ALL.to_owned());
        self
    }
}

fn is_all(entry: &str) -> bool {
    entry.trim() == ALL
}

fn is_network_of_ipv6(entry: &str) -> bool {
    entry
        .split_once('/')
        .is_some_and(|(address, bits)| address.parse::<Ipv6Addr>().is_ok() && bits.parse::<u8>().is_ok())
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Rule {
    transform: Option<Transform>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Transform {
    headers: BTreeMap<String, String>,
}

/// Header rules in E2B's format.
pub(super) fn rules_view(rules: HeaderRules) -> Value {
    let rules = HeadersByHost::from(rules).into_iter();
    rules.map(|(host, headers)| (host, json!([{ "transform": { "headers": headers } }]))).collect()
}

/// A policy in E2B's format.
pub(super) fn view(policy: &Policy, settings: &Settings) -> Value {
    let mut allow: Vec<String> = policy.allow.iter().map(ToString::to_string).collect();
    if matches!(policy.mode, Mode::Open | Mode::Learn) {
        allow = vec![ALL.to_owned()];
    }
    let mut deny: Vec<String> = policy.deny.iter().map(ToString::to_string).collect();
    if matches!(policy.mode, Mode::Deny | Mode::Allow) {
        deny = vec![ALL.to_owned()];
    }
    let mut view = json!({ "allowOut": allow, "denyOut": deny, "allowPublicTraffic": settings.public_ports });
    if let Some(host) = &settings.request_host {
        view["maskRequestHost"] = host.as_str().into();
    }
    if !settings.https_ports.is_empty() {
        view["httpsPorts"] = json!(settings.https_ports);
    }
    view
}

async fn update(call: SandboxCall<Run>, body: JsonBody<Network>) -> Result<StatusCode, ApiError> {
    let template = call.sandbox.info().template;
    let usual = || Ok(call.app.engine.networks().usual(call.workspace().as_str(), &template)?.policy);
    call.sandbox.change_network(body.value.change(usual)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(body: Value) -> Result<Option<Policy>, ApiError> {
        let usual = || Ok(Policy::allow(["pypi".parse().unwrap()]));
        serde_json::from_value::<Network>(body).unwrap().spec(usual).map(|spec| spec.policy)
    }

    fn mode(body: Value) -> Mode {
        policy(body).unwrap().unwrap().mode
    }

    #[test]
    fn nothing_leaves_unless_it_is_listed() {
        assert_eq!(policy(json!({})).unwrap(), None);
        assert_eq!(mode(json!({ "denyOut": [ALL] })), Mode::Deny);
        assert_eq!(mode(json!({ "allowOut": ["pypi.org"], "denyOut": [ALL] })), Mode::Allow);
        assert_eq!(mode(json!({ "allowOut": [ALL] })), Mode::Open);
        assert_eq!(mode(json!({ "allowOut": [ALL, "pypi.org"], "denyOut": [ALL] })), Mode::Open);
    }

    #[test]
    fn parts_are_taken_away_from_what_there_is() {
        let denied = |body| {
            let policy = policy(body).unwrap().unwrap();
            (policy.mode, policy.deny.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        let part = || vec!["1.2.3.4".to_owned()];
        assert_eq!(denied(json!({ "allowOut": [ALL], "denyOut": ["1.2.3.4/32", "::/0"] })), (Mode::Open, part()));
        assert_eq!(denied(json!({ "denyOut": ["1.2.3.4/32"] })), (Mode::Allow, part()));
        assert_eq!(denied(json!({ "denyOut": ["1.2.3.4/32", ALL] })), (Mode::Deny, Vec::new()));
        // As with E2B, the allow-list wins.
        assert_eq!(denied(json!({ "allowOut": ["1.2.3.4"], "denyOut": ["1.2.3.0/24"] })), (Mode::Allow, Vec::new()));
    }

    #[test]
    fn an_update_starts_from_the_default_and_not_from_nothing() {
        let change = |body: Value| {
            let usual = || Ok(Policy::allow(["pypi".parse().unwrap()]));
            serde_json::from_value::<Network>(body).unwrap().change(usual).unwrap()
        };
        let empty = change(json!({}));
        assert!(empty.before == Before::Forgotten && empty.policy.is_nothing());
        assert_eq!(empty.header_rules, Some(HeaderRules::default()), "rules are cleared, too");
        let denied = change(json!({ "denyOut": ["1.2.3.4"] }));
        assert_eq!((denied.before, denied.policy.mode), (Before::Stays, Some(Mode::Allow)));
        assert_eq!(denied.policy.allow.unwrap().len(), 1);
    }

    #[test]
    fn rules_set_headers_and_open_nothing() {
        let read = |rules: Value| {
            let network: Network = serde_json::from_value(json!({ "rules": rules })).unwrap();
            network.spec(|| Ok(Policy::default())).map(|spec| (spec.policy, rules_view(spec.header_rules)))
        };
        let set = |headers: Value| json!({ "transform": { "headers": headers } });
        assert_eq!(read(json!({ "a.example": [], "b.example": [{ "transform": {} }] })).unwrap(), (None, json!({})));
        let two = json!({ "a.example": [set(json!({ "x-a": "1", "x-b": "2" })), set(json!({ "x-b": "3" }))] });
        let merged = json!({ "a.example": [set(json!({ "x-a": "1", "x-b": "3" }))] });
        assert_eq!(read(two).unwrap(), (None, merged));
        assert!(read(json!({ "a.example": [set(json!({ "Host": "b.example" }))] })).is_err());
    }

    #[test]
    fn what_cannot_be_kept_is_refused() {
        for body in [
            json!({ "allowOut": [ALL, "1.2.3.4"], "denyOut": ["1.2.3.0/24"] }),
            json!({ "denyOut": ["example.org"] }),
            json!({ "dnsServers": ["1.1.1.1"] }),
            json!({ "egressProxy": { "address": "x:1" } }),
            json!({ "rules": { "a.example": [{ "transform": { "headers": { "Host": "1" } } }] } }),
            json!({ "allowOut": ["not a name"] }),
            json!({ "allowOut": ["1.1.1.1"] }),
            json!({ "allowOut": ["pypi.org", "8.8.8.8/32"] }),
        ] {
            assert!(policy(body.clone()).is_err(), "{body}");
        }
    }
}
