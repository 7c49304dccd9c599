//! This server's place in its fleet, and what happens to a request.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use sandling_engine::{Engine, FairSlots, SandboxId};
use sandling_fleet::{BootClock, Copies, LeaseSettings, Member, Moves, NodeRecord, Protocol, SharedRecords};
use sandling_wire::Home;
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;

use super::chosen::KeyedCreates;
use super::connections::Connections;
use super::durable::FleetStore;
use super::engine::OwnEngine;
use super::failover::Failover;
use super::find::Sought;
use super::here::{Answering, Here};
use super::known_nodes::KnownNodes;
use super::moves::{Arrivals, CutOff, Gate};
use super::pulls::{PullTemplates, Pulls};
use super::settings::{FleetError, FleetSettings, Membership};
use super::{
    accounts, audit, bring, builds, chosen, engine, find, follow_engine, health, join, list, moves, named, place,
    pulls, quotas, route, templates, theirs, volumes,
};
use crate::app::App;
use crate::e2b;
use crate::error::ApiError;
use crate::peer::{Peer, Sender};
use crate::tls::{LocalCertificate, Tls};

#[derive(Default)]
struct Attached(OnceLock<Arc<Fleet>>);

/// In seconds.
const RETRY_AFTER: u64 = 5;
const STRANGERS: usize = 8;

/// What the operator of a node chooses.
#[derive(Default)]
pub struct NodeChoices {
    /// Which templates of other nodes are copied in the background, if any.
    pub pulls: Option<PullTemplates>,
    /// How old the point of a sandbox with failover becomes while the sandbox is used.
    pub failover_every: Duration,
}

pub struct Fleet {
    pub(super) settings: FleetSettings,
    pub(super) home: Home,
    pub(super) membership: Membership,
    pub(super) hardware: String,
    pub(super) connector: TlsConnector,
    pub(super) connections: Connections,
    pub(super) creates: KeyedCreates,
    /// Builds whose forms this node keeps in memory for their clients.
    pub(super) forms: Arc<FairSlots>,
    /// How many questions to all nodes there are at once for clients that may have no token.
    pub(super) strangers: Semaphore,
    pub(super) shared: SharedRecords,
    /// Which sandboxes have moved.
    pub(super) moves: Moves,
    pub(super) gate: Gate,
    pub(super) undecided: Arrivals,
    /// Moves that were under way when this process started.
    pub(super) cut_off: Mutex<Vec<CutOff>>,
    /// Absent if the fleet has none.
    pub(super) store: Option<FleetStore>,
    pub(super) pulls: Pulls,
    pub(super) known_nodes: KnownNodes,
    pub(super) own_engine: OwnEngine,
    /// What this node remembers of an etcd that it used before.
    pub(super) late_copies: Mutex<Option<Copies>>,
    pub(super) failover: Failover,
    tls: Tls,
}

impl Fleet {
    pub fn new(
        settings: FleetSettings,
        home: &Home,
        engine: &Engine,
        choices: NodeChoices,
    ) -> Result<Arc<Self>, FleetError> {
        let (tls, connector) = settings.tls(home)?;
        let secret = join::read(&LocalCertificate::at(&home.fleet()).authority_key())?;
        let (shared, moves) = (SharedRecords::new(secret.as_bytes()), Moves::new(secret.as_bytes()));
        let gate = Gate::default();
        let cut_off = Mutex::new(moves::cut_off(engine, &gate));
        let store = FleetStore::open(&settings, home, secret.as_bytes())?;
        let hardware = engine.probe().accelerator.to_string();
        let about = NodeRecord {
            fingerprint: settings.fingerprint.clone(),
            hardware: hardware.clone(),
            address: settings.address.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol: Protocol::OWN,
            draining: false,
            unknown: Default::default(),
        };
        let (ledger, lease) = (settings.ledger(home)?, LeaseSettings::default());
        let membership = Membership::new(&settings.name, about, ledger, BootClock, lease);
        Ok(Arc::new(Self {
            settings,
            home: home.clone(),
            membership,
            hardware,
            connector,
            connections: Connections::default(),
            creates: KeyedCreates::default(),
            forms: builds::slots(),
            strangers: Semaphore::new(STRANGERS),
            shared,
            moves,
            gate,
            undecided: Arrivals::default(),
            cut_off,
            store,
            known_nodes: KnownNodes::open(home),
            late_copies: Mutex::default(),
            own_engine: OwnEngine::new(&engine.config().launcher),
            pulls: Pulls::open(home, choices.pulls),
            failover: Failover::new(engine, choices.failover_every),
            tls,
        }))
    }

    /// For the address where other nodes connect.
    pub fn tls(&self) -> Tls {
        self.tls.clone()
    }

    /// Makes a server a node, before it serves.
    pub fn attach(self: &Arc<Self>, app: &Arc<App>) {
        // A server has one fleet.
        let _ = app.dialect_state::<Attached>().0.set(self.clone());
        app.service.admission.share_with(quotas::OtherNodes::new(self, app));
        let fleet = Arc::downgrade(self);
        let may_send = move |id: &SandboxId| fleet.upgrade().is_some_and(|fleet| fleet.may_run(id));
        app.engine.set_network_fence(Arc::new(may_send));
    }

    /// The fleet that a server is a node of.
    pub(crate) fn of(app: &App) -> Option<Arc<Self>> {
        app.dialect_state::<Attached>().0.get().cloned()
    }

    /// Stays a member, shares tokens with the others and makes snapshots durable, until the future is dropped.
    pub async fn keep(&self, app: &Arc<App>) {
        if self.settings.would_run(&self.engine()) {
            engine::wait_until_ready(self.membership.ledger()).await;
        }
        let moved = self.moves.follow(&self.membership, || ());
        let recover = self.recover_moves(app);
        let moves = async { tokio::join!(recover, self.drain(app), self.decide_arrivals(app), self.forget_ended(app)) };
        let failover = self.keep_failover(app);
        let pulls = self.pull_templates(app);
        let member = async { tokio::join!(self.membership.keep(), self.follow_engine(), self.copy_records()) };
        tokio::join!(member, self.share_accounts(app), self.keep_durable(app), moved, moves, pulls, failover);
    }

    pub(crate) async fn answer<F>(
        &self,
        app: &App,
        request: Request,
        answer_here: impl Fn(Request) -> F + Sync,
    ) -> Response
    where
        F: Future<Output = Result<Response, Infallible>> + Send,
    {
        let shape = e2b::shape_of_client(&request);
        let answer_here = |request| -> Answering<'_> {
            let answering = answer_here(request);
            Box::pin(async move { answering.await.unwrap_or_else(|never| match never {}) })
        };
        let here = Here::new(&answer_here);
        let route = request.extensions().get::<Peer>().map(|peer| peer.route().clone());
        let is_passed_on = route.as_ref().is_some_and(|route| route.is_passed_on);
        let answered = match route.map_or(Sender::Client, |route| route.sender) {
            Sender::Client | Sender::Proxy => self.answer_client(app, request, here).await,
            Sender::Node(machine) if self.membership.has_removed(&machine) => {
                Err(ApiError::new(StatusCode::FORBIDDEN, "node_removed", "this node was removed from the fleet"))
            }
            Sender::Node(machine) => self.answer_node(app, &machine, is_passed_on, request, here).await,
            Sender::Stranger if *request.method() == Method::POST && request.uri().path() == join::PATH => {
                join::answer(self, request).await
            }
            Sender::Stranger => Err(ApiError::new(StatusCode::FORBIDDEN, "forbidden", "only nodes connect here")),
        };
        let render = |error| ApiError { shape, ..error }.render(&sandling_service::random::hex::<8>());
        answered.unwrap_or_else(render)
    }

    /// What nodes ask each other is none of their clients' business.
    async fn answer_node(
        &self,
        app: &App,
        machine: &str,
        is_passed_on: bool,
        mut request: Request,
        here: Here<'_>,
    ) -> Result<Response, ApiError> {
        let is_spoken = self.check_protocol(machine, &mut request);
        if is_passed_on {
            is_spoken?;
            return self.answer_passed_on(app, request, here).await;
        }
        // All versions understand these.
        match (request.method(), request.uri().path()) {
            (&Method::GET, health::PATH) => return Ok(health::answer(self)),
            (&Method::GET, follow_engine::PATH) => return Ok(follow_engine::answer(self, request.uri().query()).await),
            (&Method::POST, follow_engine::PATH) => return follow_engine::answer_switch(self, request).await,
            _ => is_spoken?,
        }
        Ok(match (request.method(), request.uri().path()) {
            (&Method::GET, follow_engine::COPIES) => follow_engine::answer_copies(self, request.uri().query()).await?,
            (&Method::POST, follow_engine::START) => follow_engine::answer_start(self, request).await?,
            (&Method::GET, bring::PATH) => bring::answer(app, request.uri().query()).await,
            (&Method::GET, builds::FILES) => builds::answer_files(app, request.uri().query()).await,
            (&Method::DELETE, builds::FILES) => builds::answer_taken(app, request.uri().query()),
            (&Method::GET, place::PATH) => place::answer(self, app, &request),
            (&Method::GET, find::PATH) => find::answer(app, &request),
            (&Method::GET, pulls::LIST) => pulls::answer_list(self, app),
            (&Method::GET, pulls::OFFER) => pulls::answer_offer(app, request).await,
            (&Method::POST, pulls::OFFER) => pulls::answer_send(app, request).await,
            (&Method::GET, quotas::PATH) => quotas::answer(self, app, &request),
            (&Method::GET, volumes::PATH) => volumes::answer_size(app, request.uri().query()),
            (&Method::POST, volumes::PATH) => volumes::answer_send(app, request.uri().query()).await,
            (&Method::POST, accounts::PATH) => self.answer_push(app, request).await?,
            (&Method::POST, moves::OFFER) => moves::answer_offer(self, app, request).await,
            (&Method::POST, moves::TAKE) => moves::answer_take(self, app, request).await,
            _ => return self.answer_passed_on(app, request, here).await,
        })
    }

    /// A request that another node passes on for its client.
    async fn answer_passed_on(&self, app: &App, mut request: Request, here: Here<'_>) -> Result<Response, ApiError> {
        let asker = route::take_mark(&mut request, true);
        let is_create = *request.method() == Method::POST && named::is_collection(request.uri().path());
        let is_build = *request.method() == Method::POST && request.uri().path() == builds::PATH;
        match route::subject(app, request) {
            (Some(id), request) => self.answer_about(app, &id, asker, request, here).await,
            (None, request) if is_create => chosen::create(self, app, request, here).await,
            (None, request) if is_build => builds::answer_passed_on(self, app, request, here).await,
            (None, request) => Ok(self.answer_here(app, request, here).await),
        }
    }

    async fn answer_client(&self, app: &App, mut request: Request, here: Here<'_>) -> Result<Response, ApiError> {
        let asker = route::take_mark(&mut request, false);
        // A server in a sandbox may have the same paths as the API.
        let (subject, request) = route::subject(app, request);
        if let Some(id) = subject {
            return self.answer_about(app, &id, asker, request, here).await;
        }
        let (method, path) = (request.method(), request.uri().path());
        Ok(match method {
            &Method::POST if named::is_collection(path) => return place::create(self, app, request, here).await,
            &Method::POST if path == builds::PATH => return builds::start(self, app, request, here).await,
            &Method::GET if list::is_by_time(path) => list::list(self, app, request, here).await,
            &Method::GET if list::is_of_nodes(path) => list::list_of_nodes(self, app, request, here).await,
            &Method::POST if matches!(path, "/v1/volumes" | "/volumes") => {
                return volumes::create(self, app, request, here).await;
            }
            &Method::POST if volumes::is_clone(path) => return volumes::clone(self, app, request, here).await,
            &Method::GET if path == templates::PATH => templates::list(self, app, request, here).await,
            &Method::GET if theirs::is_list(path) => return theirs::answer_list(self, app, request, here).await,
            method if theirs::has_name_in_body(method, path) => {
                return theirs::answer_named_in_body(self, app, request, here).await;
            }
            &Method::GET if audit::is_about(path) => return audit::answer(self, app, request, here).await,
            _ => return self.answer_by_name(app, request, here).await,
        })
    }

    /// Answers here, unless the request names something that only another node has.
    pub(super) async fn answer_by_name(
        &self,
        app: &App,
        request: Request,
        here: Here<'_>,
    ) -> Result<Response, ApiError> {
        let (parts, body) = request.into_parts();
        let owner = match Sought::of(app, &parts).filter(|sought| !sought.is_here(app)) {
            Some(sought) if sought.is_e2bs_delete(&parts) => {
                return theirs::delete(self, app, &sought, Request::from_parts(parts, body), here).await;
            }
            Some(sought) => match sought.owner(self, app).await {
                Ok(Some(owner)) => Some(owner),
                // Its node is down or was removed, but the fleet knows what is durable.
                neither => match self.answer_for_stored(app, &sought, &parts, neither.is_ok()).await? {
                    Some(response) => return Ok(response),
                    None => neither?,
                },
            },
            None => None,
        };
        let request = Request::from_parts(parts, body);
        match owner {
            Some(owner) => self.forward(app, &owner, request).await,
            None => Ok(self.answer_here(app, request, here).await),
        }
    }

    async fn answer_here(&self, app: &App, request: Request, here: Here<'_>) -> Response {
        match accounts::may_change(request.method(), request.uri().path()) {
            true => self.answer_and_publish(app, request, here).await,
            false => here.answer(request).await,
        }
    }

    /// All members but this node, by name.
    pub(super) fn others(&self) -> Vec<Member> {
        let mut members = self.membership.members();
        members.retain(|member| *member.name != *self.membership.name());
        members
    }
}

pub(super) fn unavailable(effect: &str, why: &str) -> ApiError {
    let message = format!("the fleet {effect} now: {why}; try again later");
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "fleet_unavailable", message).retry_after(RETRY_AFTER)
}

pub(super) fn unreachable(node: &str, why: &str) -> ApiError {
    let message = format!("node {node} does not answer ({why}); try again later");
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "node_unreachable", message).retry_after(RETRY_AFTER)
}
