//! What may leave a sandbox, in E2B's words: the same policies as everybody's.
//!
//! With E2B everything leaves unless it is forbidden; here nothing does unless it is allowed. So what is listed under
//! `allowOut` is allowed and nothing else, and only `0.0.0.0/0` in that list opens the internet.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::put;
use sandling_engine::{NetworkChange, NetworkSettings, NetworkWish};
use sandling_network::policy::Mode;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::caller::sandbox;
use crate::app::App;
use crate::auth::{Caller, Run};
use crate::e2b::refusal::unsupported;
use crate::error::ApiError;
use crate::extract::{JsonBody, Parts};
use crate::wire::network::{ModeName, NetworkRequest};

const ALL: &str = "0.0.0.0/0";

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
    rules: Map<String, Value>,
    mask_request_host: Option<String>,
    pub(super) allow_public_traffic: Option<bool>,
}

impl Network {
    /// The policy that is meant, unless it says what cannot be kept.
    pub(super) fn wish(self) -> Result<NetworkWish, ApiError> {
        if !self.rules.is_empty() {
            return Err(unsupported("rules cannot be had; use a secret of Sandling's own API to put headers in"));
        }
        if !self.dns_servers.is_empty() || !self.egress_proxy.is_null() {
            return Err(unsupported(
                "DNS servers and a proxy are the server's; leave dns_servers and egress_proxy out",
            ));
        }
        if self.mask_request_host.is_some() {
            return Err(unsupported("a server in a sandbox sees `localhost` as its host; leave mask_request_host out"));
        }
        let is_open = self.allow_out.iter().any(|entry| entry == ALL);
        if is_open && self.deny_out.iter().any(|entry| entry != ALL) {
            return Err(unsupported(
                "parts of an open network cannot be denied; list in allow_out what may be reached",
            ));
        }
        let request = if is_open {
            NetworkRequest { mode: Some(ModeName::Open), ..NetworkRequest::default() }
        } else {
            let allow = Some(self.allow_out).filter(|listed| !listed.is_empty() || !self.deny_out.is_empty());
            NetworkRequest { allow, ..NetworkRequest::default() }
        };
        Ok(request.into_wish(None)?)
    }
}

/// What a sandbox may reach, as these clients read it.
pub(super) fn view(settings: &NetworkSettings, public_ports: bool) -> Value {
    let policy = &settings.policy;
    let mut allow: Vec<String> = policy.allow.iter().map(ToString::to_string).collect();
    if matches!(policy.mode, Mode::Open | Mode::Learn) {
        allow = vec![ALL.to_owned()];
    }
    json!({ "allowOut": allow, "denyOut": [ALL], "allowPublicTraffic": public_ports })
}

async fn update(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Parts(id): Parts<String>,
    body: JsonBody<Network>,
) -> Result<StatusCode, ApiError> {
    let found = sandbox(&app, &caller, &id).await?;
    // Here nothing said is nothing allowed: the whole is replaced.
    let policy = Some(body.value.wish()?.policy.unwrap_or_default());
    found.change_network(NetworkChange { policy, ..NetworkChange::default() }).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(body: Value) -> Result<Mode, ApiError> {
        serde_json::from_value::<Network>(body).unwrap().wish().map(|wish| wish.policy.unwrap_or_default().mode)
    }

    #[test]
    fn nothing_leaves_unless_it_is_listed() {
        assert_eq!(mode(json!({})).unwrap(), Mode::Deny);
        assert_eq!(mode(json!({ "denyOut": [ALL] })).unwrap(), Mode::Deny);
        assert_eq!(mode(json!({ "allowOut": ["pypi.org"], "denyOut": [ALL] })).unwrap(), Mode::Allow);
        assert_eq!(mode(json!({ "allowOut": [ALL] })).unwrap(), Mode::Open);
    }

    #[test]
    fn what_cannot_be_kept_is_refused() {
        for body in [
            json!({ "allowOut": [ALL], "denyOut": ["1.2.3.4/32"] }),
            json!({ "dnsServers": ["1.1.1.1"] }),
            json!({ "egressProxy": { "address": "x:1" } }),
            json!({ "rules": { "a.example": [] } }),
            json!({ "allowOut": ["not a name"] }),
        ] {
            assert!(mode(body.clone()).is_err(), "{body}");
        }
    }
}
