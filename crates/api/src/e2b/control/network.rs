//! What may leave a sandbox. Nothing does yet, so rules that forbid are kept and rules that allow are refused.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::put;
use serde::Deserialize;
use serde_json::Value;

use super::caller::sandbox;
use crate::app::App;
use crate::auth::{Caller, Run};
use crate::e2b::refusal::unsupported;
use crate::error::ApiError;
use crate::extract::{JsonBody, Parts};

pub(super) fn router() -> Router<Arc<App>> {
    Router::new().route("/sandboxes/{id}/network", put(update))
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Network {
    allow_out: Option<Vec<String>>,
    dns_servers: Option<Vec<String>>,
    egress_proxy: Option<Value>,
    rules: Option<serde_json::Map<String, Value>>,
    mask_request_host: Option<String>,
    pub(super) allow_public_traffic: Option<bool>,
}

/// Refuses what would not be true. That everything is denied always is.
pub(super) fn check(network: &Network) -> Result<(), ApiError> {
    let opens = network.allow_out.as_ref().is_some_and(|allowed| !allowed.is_empty());
    if opens || network.rules.as_ref().is_some_and(|rules| !rules.is_empty()) {
        return Err(unsupported("nothing leaves a sandbox: there is no network to allow names in yet"));
    }
    let more = network.dns_servers.as_ref().is_some_and(|servers| !servers.is_empty());
    if more || network.egress_proxy.as_ref().is_some_and(|proxy| !proxy.is_null()) {
        return Err(unsupported("nothing leaves a sandbox: there is no network for DNS servers or a proxy yet"));
    }
    match network.mask_request_host {
        Some(_) => {
            Err(unsupported("a server in a sandbox sees `localhost` as its host; maskRequestHost changes nothing"))
        }
        None => Ok(()),
    }
}

async fn update(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Parts(id): Parts<String>,
    body: JsonBody<Network>,
) -> Result<StatusCode, ApiError> {
    sandbox(&app, &caller, &id).await?;
    check(&body.value)?;
    Ok(StatusCode::NO_CONTENT)
}
