//! Creates: the gateway asks a few nodes, and the one that offers the most gets the request.
//!
//! A request with an idempotency key goes to the node that the ledger has assigned to the key. That node's own record of
//! the key makes the create happen once, so a retry through any node finds the same sandbox.
//!
//! An offer reserves nothing. If the chosen node declines the create, the next one is tried.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use http_body_util::BodyExt;
use sandling_engine::{SnapshotId, State};
use sandling_fleet::{Assigned, Member, assign, node_tag};
use sandling_service::has_template;
use sandling_wire::DEFAULT_TEMPLATE;
use serde::Deserialize;

use super::chosen::{self, DECLINED};
use super::find::Sought;
use super::here::{Here, Opened, Opening};
use super::member::{Fleet, unavailable, unreachable};
use crate::app::App;
use crate::e2b;
use crate::error::ApiError;

pub(super) const PATH: &str = "/fleet/offer";
/// How often a few nodes are asked.
const ROUNDS: usize = 3;
const OFFER_WITHIN: Duration = Duration::from_millis(500);
/// How many nodes may decline a create before the client gets the refusal.
const MOST_DECLINED: usize = 3;
/// In a question: the template has one of E2B's names.
const E2B: &str = "e2b";

/// What placement needs of a create, in the words of any dialect.
#[derive(Default, Deserialize)]
pub(super) struct Wanted {
    name: Option<String>,
    #[serde(alias = "templateID")]
    template: Option<String>,
    image: Option<serde_json::Value>,
    from_snapshot: Option<String>,
    #[serde(alias = "volumeMounts")]
    volumes: Option<Vec<WantedVolume>>,
    network_group: Option<serde_json::Value>,
    failover: Option<serde_json::Value>,
    #[serde(skip)]
    dialect: TemplateDialect,
    /// A template by one of E2B's names that is not built in. The newest of this name counts.
    #[serde(skip)]
    theirs: Option<String>,
}

#[derive(Deserialize)]
struct WantedVolume {
    name: String,
}

impl Wanted {
    /// A body that cannot be read is refused by the node that gets it.
    pub(super) fn read(app: &App, opened: &Opened) -> Self {
        let mut wanted: Self = serde_json::from_slice(&opened.body).unwrap_or_default();
        if !opened.parts.uri.path().starts_with("/v1/") {
            let workspace = opened.principal.workspace.as_str();
            wanted.dialect = TemplateDialect::E2b;
            wanted.theirs = wanted.template.clone().filter(|name| !e2b::is_built_in(app, workspace, name));
        }
        wanted
    }

    /// The snapshot that has to be on the node of the sandbox, by its id or name. In E2B's words, its id names a template.
    pub(super) fn snapshot(&self) -> Option<&str> {
        let theirs = self.theirs.as_deref().filter(|name| SnapshotId::parse(name).is_some());
        self.from_snapshot.as_deref().or(theirs)
    }

    /// Snapshots, volumes, templates of E2B's clients, images and groups exist on one node only.
    pub(super) fn is_local(&self) -> bool {
        let is_here = self.image.is_some() || self.network_group.is_some() || self.theirs.is_some();
        is_here || self.from_snapshot.is_some() || self.volumes.as_ref().is_some_and(|volumes| !volumes.is_empty())
    }

    /// What has to be on the node that gets the request.
    fn needs(&self, workspace: &str) -> Vec<Sought> {
        let volumes = self.volumes.iter().flatten().map(|volume| Sought::volume(workspace, &volume.name));
        // Last, because it may be durable: then it can be brought to the volumes.
        let snapshot = self.from_snapshot.iter().map(|snapshot| Sought::snapshot(workspace, snapshot));
        let template = self.theirs.iter().map(|name| Sought::e2b_template(workspace, name));
        volumes.chain(snapshot).chain(template).collect()
    }
}

/// A create on its way to a node.
struct Create<'a> {
    fleet: &'a Fleet,
    app: &'a App,
    workspace: String,
    wanted: Wanted,
    key: Option<String>,
}

/// A durable snapshot that is not where the sandbox will be.
struct Durable {
    id: String,
    /// What a host must have to restore it.
    made_on: String,
}

/// Whose names of templates a request uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum TemplateDialect {
    #[default]
    Native,
    E2b,
}

pub(super) async fn create(fleet: &Fleet, app: &App, request: Request, here: Here<'_>) -> Result<Response, ApiError> {
    let opened = match Opened::read(app, request).await? {
        Opening::Opened(opened) => opened,
        Opening::NoToken(request) => return Ok(here.answer(request).await),
    };
    let wanted = Wanted::read(app, &opened);
    let workspace = opened.principal.workspace.to_string();
    let create = Create { fleet, app, workspace, wanted, key: key(&opened.parts) };
    let mut declined = Vec::new();
    let mut refusal = None;
    loop {
        let target = match create.target(&declined).await {
            Ok(target) => target,
            // What the last node said is more exact.
            Err(error) => return refusal.ok_or(error),
        };
        let mut response = create.pass_on(&target, opened.request(), here).await?;
        let is_declined = response.headers_mut().remove(DECLINED).is_some();
        if !is_declined || create.wanted.is_local() || declined.len() == MOST_DECLINED {
            return Ok(response);
        }
        tracing::info!(
            node = &*target,
            status = response.status().as_u16(),
            "a node declined a create that it offered"
        );
        declined.push(target);
        refusal = Some(response);
    }
}

pub(super) fn key(parts: &Parts) -> Option<String> {
    parts.headers.get("idempotency-key").and_then(|key| key.to_str().ok()).map(str::to_owned)
}

pub(super) fn refused(why: &str) -> ApiError {
    unavailable("cannot create a sandbox", why)
}

impl Create<'_> {
    async fn pass_on(&self, target: &str, request: Request, here: Here<'_>) -> Result<Response, ApiError> {
        let (fleet, app) = (self.fleet, self.app);
        if *target == *fleet.membership.name() {
            return chosen::create(fleet, app, request, here).await;
        }
        let member = fleet.membership.by_tag(node_tag(target)).map_err(|error| refused(&error.to_string()))?;
        let member = member.ok_or_else(|| unreachable(target, "it has left the fleet"))?;
        fleet.forward(app, &member, request).await
    }

    /// The node that gets the request: the one that has its key, or else the cheapest.
    async fn target(&self, declined: &[Arc<str>]) -> Result<Arc<str>, ApiError> {
        let target = self.propose(declined).await;
        let Some(key) = &self.key else { return target };
        let assigned = assign(&self.fleet.membership, &self.workspace, key, target.as_deref().ok()).await;
        match assigned.map_err(|error| refused(&error.to_string()))? {
            Assigned::Node(name) => Ok(name.into()),
            Assigned::Nobody => target,
            Assigned::Fenced => Err(refused("this node has lost its lease")),
        }
    }

    async fn propose(&self, declined: &[Arc<str>]) -> Result<Arc<str>, ApiError> {
        if self.wanted.failover.is_some() {
            self.fleet.check_all_know_failover()?;
        }
        if let Some(name) = self.wanted.name.as_deref().filter(|_| self.wanted.dialect == TemplateDialect::Native) {
            Sought::sandbox(&self.workspace, name).refuse_taken(self.fleet, self.app).await?;
        }
        if self.wanted.is_local() {
            return self.only_node(declined).await;
        }
        self.choose(declined, None).await
    }

    /// The node that has everything that the sandbox needs, but for a durable snapshot, which can be brought to any. If
    /// something is nowhere, this node says so.
    async fn only_node(&self, declined: &[Arc<str>]) -> Result<Arc<str>, ApiError> {
        let mut only: Option<(Sought, Member)> = None;
        for sought in self.wanted.needs(&self.workspace) {
            let holder = sought.holder(self.fleet, self.app).await;
            let is_usable = |member: &Member| {
                let is_there = only.as_ref().is_none_or(|(_, there)| there.name == member.name);
                is_there && !member.record.draining && !declined.contains(&member.name)
            };
            if !matches!(&holder, Ok(Some(member)) if is_usable(member))
                && let Some(durable) = self.durable(&sought, matches!(holder, Ok(None))).await?
            {
                return match only {
                    Some((_, member)) => Ok(member.name),
                    None => self.choose(declined, Some(&durable)).await,
                };
            }
            let Some(member) = holder? else { continue };
            match &only {
                Some((first, there)) if there.name != member.name => {
                    let message = format!(
                        "{first} is on node {} and {sought} on node {}; a sandbox needs both on one node",
                        there.name, member.name
                    );
                    return Err(ApiError::conflict("on_two_nodes", message));
                }
                Some(_) => {}
                None if member.record.draining => {
                    return Err(refused(&format!("{sought} is on node {}, which is draining", member.name)));
                }
                None => only = Some((sought, member)),
            }
        }
        Ok(only.map_or_else(|| self.fleet.membership.name().into(), |(_, member)| member.name))
    }

    /// The durable snapshot that is sought. If all nodes have answered that they do not have it, only one that is down can.
    async fn durable(&self, sought: &Sought, all_answered: bool) -> Result<Option<Durable>, ApiError> {
        let Some((workspace, named)) = sought.as_snapshot() else { return Ok(None) };
        let found = self.fleet.stored(workspace, named).await?;
        let found = found.filter(|(_, record)| !(all_answered && self.fleet.is_up(&record.node)));
        Ok(found.map(|(id, record)| Durable { id: id.to_string(), made_on: record.made_on }))
    }

    /// The cheapest of the candidates that would take the sandbox. If a candidate does not have the template, or cannot restore
    /// the snapshot, all nodes are asked in the end.
    async fn choose(&self, declined: &[Arc<str>], durable: Option<&Durable>) -> Result<Arc<str>, ApiError> {
        let membership = &self.fleet.membership;
        let declined = declined.iter().map(|name| (name.clone(), Refusal::Other("declined it".to_owned())));
        let mut refusals: BTreeMap<_, _> = declined.collect();
        for round in 0..=ROUNDS {
            let mut candidates = match round {
                ROUNDS if durable.is_none() && !refusals.values().any(|refusal| *refusal == Refusal::NoTemplate) => {
                    Vec::new()
                }
                ROUNDS => {
                    let mut all = membership.members();
                    all.retain(|member| member.record.hardware == self.fleet.hardware);
                    all
                }
                _ => {
                    let wanted = durable.map_or(self.template(), |durable| &durable.id);
                    membership.candidates(wanted, &self.fleet.hardware, round, fastrand::u64(..))
                }
            };
            candidates.retain(|member| !refusals.contains_key(&member.name));
            if let Some(cheapest) = self.cheapest(candidates, durable, &mut refusals).await {
                return Ok(cheapest);
            }
        }
        let missing = refusals.values().filter(|refusal| **refusal == Refusal::NoTemplate).count();
        if missing > 0 && missing == refusals.len() {
            // This node knows best how to say that there is no such template.
            return Ok(membership.name().into());
        }
        // A node without the template is of no interest if another one has it.
        let reasons = refusals.iter().filter(|(_, refusal)| **refusal != Refusal::NoTemplate);
        let reasons: Vec<_> = reasons.map(|(name, refusal)| format!("{name} {refusal}")).collect();
        let why = if reasons.is_empty() { "all nodes drain".to_owned() } else { reasons.join(", ") };
        Err(refused(&why))
    }

    /// Asks the candidates at once.
    async fn cheapest(
        &self,
        candidates: Vec<Member>,
        durable: Option<&Durable>,
        refusals: &mut BTreeMap<Arc<str>, Refusal>,
    ) -> Option<Arc<str>> {
        let offers = candidates.into_iter().map(|member| async move {
            let offer = tokio::time::timeout(OFFER_WITHIN, self.ask(&member, durable)).await;
            (offer.unwrap_or_else(|_| Err("did not answer in time".to_owned().into())), member)
        });
        let mut best: Option<(u64, Arc<str>)> = None;
        for (offer, member) in join_all(offers).await {
            match offer {
                Ok(cost) if best.as_ref().is_none_or(|(least, _)| cost < *least) => best = Some((cost, member.name)),
                Ok(_) => {}
                Err(refusal) => drop(refusals.insert(member.name, refusal)),
            }
        }
        best.map(|(_, name)| name)
    }

    async fn ask(&self, member: &Member, durable: Option<&Durable>) -> Result<u64, Refusal> {
        let (fleet, app) = (self.fleet, self.app);
        let made_on = durable.map_or("", |durable| &durable.made_on);
        if *member.name == *fleet.membership.name() {
            return match durable {
                Some(_) => offer_to_restore(fleet, app, made_on),
                None => offer(fleet, app, &self.workspace, self.template(), self.wanted.dialect),
            };
        }
        let dialect = if self.wanted.dialect == TemplateDialect::E2b { E2B } else { "" };
        let query = [
            ("workspace", &*self.workspace),
            ("template", self.template()),
            ("dialect", dialect),
            ("made_on", made_on),
        ];
        let path = format!("{PATH}?{}", serde_urlencoded::to_string(query).unwrap_or_default());
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

    fn template(&self) -> &str {
        self.wanted.template.as_deref().unwrap_or(DEFAULT_TEMPLATE)
    }
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

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTemplate => f.write_str("does not have the template"),
            Self::Other(why) => f.write_str(why),
        }
    }
}

/// Answers another node's question.
pub(super) fn answer(fleet: &Fleet, app: &App, request: &Request) -> Response {
    let query = request.uri().query();
    let value = |name| crate::auth::query_value(query, name);
    let dialect = if value("dialect") == E2B { TemplateDialect::E2b } else { TemplateDialect::Native };
    let made_on = value("made_on");
    let offered = match &*made_on {
        "" => offer(fleet, app, &value("workspace"), &value("template"), dialect),
        _ => offer_to_restore(fleet, app, &made_on),
    };
    match offered {
        Ok(cost) => cost.to_string().into_response(),
        Err(Refusal::NoTemplate) => StatusCode::NOT_FOUND.into_response(),
        Err(Refusal::Other(why)) => (StatusCode::SERVICE_UNAVAILABLE, why).into_response(),
    }
}

/// What a sandbox would cost here, or why this node does not take it.
fn offer(fleet: &Fleet, app: &App, workspace: &str, template: &str, dialect: TemplateDialect) -> Result<u64, Refusal> {
    let has_template = match dialect {
        TemplateDialect::Native => has_template(&app.engine, workspace, template),
        TemplateDialect::E2b => e2b::has_template(app, workspace, template),
    };
    // Without its lease, a node cannot know that no other node has the template.
    check_lease(fleet)?;
    if has_template { cost(fleet, app) } else { Err(Refusal::NoTemplate) }
}

/// The same for a sandbox from a durable snapshot, whose template is stored with it.
fn offer_to_restore(fleet: &Fleet, app: &App, made_on: &str) -> Result<u64, Refusal> {
    if !fleet.can_restore(app, made_on) {
        return Err("has another CPU model or another QEMU than the snapshot needs".to_owned().into());
    }
    cost(fleet, app)
}

fn check_lease(fleet: &Fleet) -> Result<(), Refusal> {
    let writer = fleet.membership.writer();
    writer.map(drop).ok_or_else(|| "has lost its lease".to_owned().into())
}

fn cost(fleet: &Fleet, app: &App) -> Result<u64, Refusal> {
    check_lease(fleet)?;
    if fleet.membership.is_draining() {
        return Err("is draining".to_owned().into());
    }
    Ok(load(app)?)
}

/// The share of memory in use, in thousandths, and one for each running sandbox. Or why there is no room.
pub(super) fn load(app: &App) -> Result<u64, String> {
    let config = app.engine.config();
    let available = (config.available_memory_mib)().unwrap_or(u64::MAX);
    if available < config.spare_memory_mib {
        return Err(format!("has only {available} MiB of memory available"));
    }
    let running = app.engine.list().iter().filter(|sandbox| sandbox.state == State::Running).count() as u64;
    let total = rustix::system::sysinfo();
    let total = (total.totalram * u64::from(total.mem_unit)) >> 20;
    Ok(1000 - (available.min(total) * 1000 / total.max(1)) + running)
}
