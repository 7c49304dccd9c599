//! Creates: the gateway asks a few nodes, and the one that offers the most gets the request.
//!
//! A request with an idempotency key goes to the node that the ledger has assigned to the key. That node's own record of
//! the key makes the create happen once, so a retry through any node finds the same sandbox.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use http_body_util::BodyExt;
use sandling_engine::State;
use sandling_fleet::{Assigned, Member, assign, node_tag};
use sandling_wire::DEFAULT_TEMPLATE;
use serde::Deserialize;

use super::member::{Fleet, unavailable, unreachable};
use crate::app::App;
use crate::auth::presented;
use crate::error::ApiError;
use crate::extract;

pub(super) const PATH: &str = "/fleet/offer";
const ROUNDS: usize = 3;
const OFFER_WITHIN: Duration = Duration::from_millis(500);

/// What placement needs of a create, in the words of any dialect.
#[derive(Default, Deserialize)]
struct Wanted {
    #[serde(alias = "templateID")]
    template: Option<String>,
    image: Option<serde_json::Value>,
    from_snapshot: Option<serde_json::Value>,
    volumes: Option<serde_json::Value>,
    #[serde(rename = "volumeMounts")]
    volume_mounts: Option<serde_json::Value>,
    network_group: Option<serde_json::Value>,
}

impl Wanted {
    /// Snapshots, volumes, images and groups exist on one node only.
    fn is_local(&self) -> bool {
        let local = [&self.image, &self.from_snapshot, &self.volumes, &self.volume_mounts, &self.network_group];
        local.iter().any(|field| field.is_some())
    }
}

pub(super) async fn create<F>(
    fleet: &Fleet,
    app: &App,
    request: Request,
    here: impl Fn(Request) -> F,
) -> Result<Response, ApiError>
where
    F: Future<Output = Response>,
{
    let (parts, body) = request.into_parts();
    let Ok(principal) = app.service.tokens.authenticate(&presented(&parts)) else {
        return Ok(here(Request::from_parts(parts, body)).await);
    };
    let body = extract::read(body).await?;
    let wanted: Wanted = serde_json::from_slice(&body).unwrap_or_default();
    let key = parts.headers.get("idempotency-key").and_then(|key| key.to_str().ok()).map(str::to_owned);
    let request = Request::from_parts(parts, Body::from(body));
    let template = wanted.template.as_deref().unwrap_or(DEFAULT_TEMPLATE);
    let workspace = principal.workspace.as_str();
    let own_name = fleet.membership.name();
    let mut target: Result<Arc<str>, ApiError> =
        if wanted.is_local() { Ok(own_name.into()) } else { choose(fleet, app, workspace, template).await };
    if let Some(key) = key {
        let assigned = assign(&fleet.membership, workspace, &key, target.as_deref().ok()).await;
        target = match assigned.map_err(|error| refused(&error.to_string()))? {
            Assigned::Node(name) => Ok(name.into()),
            Assigned::Nobody => target,
            Assigned::Fenced => Err(refused("this node has lost its lease")),
        };
    }
    let target = target?;
    if *target == *own_name {
        return Ok(here(request).await);
    }
    let member = fleet.membership.by_tag(node_tag(&target)).map_err(|error| refused(&error.to_string()))?;
    let member = member.ok_or_else(|| unreachable(&target, "it has left the fleet"))?;
    fleet.forward(app, &member, request).await
}

fn refused(why: &str) -> ApiError {
    unavailable("cannot create a sandbox", why)
}

/// Why a node does not take a sandbox.
#[derive(Debug, PartialEq, Eq)]
enum Refusal {
    NoTemplate,
    Other(String),
}

impl From<String> for Refusal {
    fn from(why: String) -> Self {
        Self::Other(why)
    }
}

/// The cheapest of the candidates that would take the sandbox.
async fn choose(fleet: &Fleet, app: &App, workspace: &str, template: &str) -> Result<Arc<str>, ApiError> {
    let mut refusals = Vec::new();
    for round in 0..ROUNDS {
        let candidates = fleet.membership.candidates(template, &fleet.hardware, round, fastrand::u64(..));
        let offers = candidates.into_iter().map(|member| async move {
            let offer = tokio::time::timeout(OFFER_WITHIN, ask(fleet, app, &member, workspace, template)).await;
            (offer.unwrap_or_else(|_| Err("did not answer in time".to_owned().into())), member)
        });
        let mut best: Option<(u64, Member)> = None;
        for (offer, member) in join_all(offers).await {
            match offer {
                Ok(cost) if best.as_ref().is_none_or(|(least, _)| cost < *least) => best = Some((cost, member)),
                Ok(_) => {}
                Err(refusal) => refusals.push((member.name, refusal)),
            }
        }
        if let Some((_, member)) = best {
            return Ok(member.name);
        }
    }
    if !refusals.is_empty() && refusals.iter().all(|(_, refusal)| *refusal == Refusal::NoTemplate) {
        // This node knows best how to say that there is no such template.
        return Ok(fleet.membership.name().into());
    }
    let mut reasons: Vec<_> = refusals.into_iter().map(|(name, refusal)| format!("{name} {refusal}")).collect();
    reasons.sort();
    reasons.dedup();
    let why = if reasons.is_empty() { "all nodes drain".to_owned() } else { reasons.join(", ") };
    Err(refused(&why))
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTemplate => f.write_str("does not have the template"),
            Self::Other(why) => f.write_str(why),
        }
    }
}

async fn ask(fleet: &Fleet, app: &App, member: &Member, workspace: &str, template: &str) -> Result<u64, Refusal> {
    if *member.name == *fleet.membership.name() {
        return offer(fleet, app, workspace, template);
    }
    let query = serde_urlencoded::to_string([("workspace", workspace), ("template", template)]);
    let path = format!("{PATH}?{}", query.unwrap_or_default());
    let response = fleet.ask(app, member, &path).await.map_err(|error| error.message)?;
    let status = response.status();
    let text = response.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
    let text = String::from_utf8_lossy(&text).into_owned();
    match status {
        StatusCode::OK => text.parse().map_err(|_| "gave an unreadable answer".to_owned().into()),
        StatusCode::NOT_FOUND => Err(Refusal::NoTemplate),
        _ => Err(text.into()),
    }
}

/// Answers another node's question.
pub(super) fn answer(fleet: &Fleet, app: &App, request: &Request) -> Response {
    let query = request.uri().query();
    let value = |name| crate::auth::query_value(query, name);
    match offer(fleet, app, &value("workspace"), &value("template")) {
        Ok(cost) => cost.to_string().into_response(),
        Err(Refusal::NoTemplate) => StatusCode::NOT_FOUND.into_response(),
        Err(Refusal::Other(why)) => (StatusCode::SERVICE_UNAVAILABLE, why).into_response(),
    }
}

/// What a sandbox would cost here: the share of memory in use, in thousandths, and one for each running sandbox. Or why
/// this node does not take it.
fn offer(fleet: &Fleet, app: &App, workspace: &str, template: &str) -> Result<u64, Refusal> {
    if fleet.membership.writer().is_none() {
        return Err("has lost its lease".to_owned().into());
    }
    if fleet.membership.is_draining() {
        return Err("is draining".to_owned().into());
    }
    let built_in = app.engine.built_in(workspace, template).ok().flatten().is_some();
    let listed = || app.engine.list_templates(workspace).unwrap_or_default();
    if !built_in && !listed().iter().any(|known| known.name == template) {
        return Err(Refusal::NoTemplate);
    }
    let config = app.engine.config();
    let available = (config.available_memory_mib)().unwrap_or(u64::MAX);
    if available < config.spare_memory_mib {
        return Err(format!("has only {available} MiB of memory available").into());
    }
    let running = app.engine.list().iter().filter(|sandbox| sandbox.state == State::Running).count() as u64;
    let total = rustix::system::sysinfo();
    let total = (total.totalram * u64::from(total.mem_unit)) >> 20;
    Ok(1000 - (available.min(total) * 1000 / total.max(1)) + running)
}
