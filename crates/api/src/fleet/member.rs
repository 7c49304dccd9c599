//! This server's place in its fleet, and which node answers a request.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use sandling_engine::Engine;
use sandling_fleet::{BootClock, LeaseSettings, Member, NodeRecord, SharedRecords, node_tag};
use sandling_wire::Home;
use tokio_rustls::TlsConnector;

use super::chosen::KeyedCreates;
use super::connections::Connections;
use super::durable::FleetStore;
use super::find::Sought;
use super::settings::{FleetError, FleetSettings, Membership};
use super::{accounts, bring, chosen, engine, find, health, join, list, named, place, templates, volumes};
use crate::app::App;
use crate::e2b;
use crate::error::ApiError;
use crate::peer::{Peer, Sender};
use crate::tls::{LocalCertificate, Tls};

#[derive(Default)]
struct Attached(OnceLock<Arc<Fleet>>);

/// In seconds.
const RETRY_AFTER: u64 = 5;

pub struct Fleet {
    pub(super) settings: FleetSettings,
    pub(super) home: Home,
    pub(super) membership: Membership,
    pub(super) hardware: String,
    pub(super) connector: TlsConnector,
    pub(super) connections: Connections,
    pub(super) creates: KeyedCreates,
    pub(super) shared: SharedRecords,
    /// Absent if the fleet has none.
    pub(super) store: Option<FleetStore>,
    tls: Tls,
}

impl Fleet {
    pub fn new(settings: FleetSettings, home: &Home, engine: &Engine) -> Result<Arc<Self>, FleetError> {
        let (tls, connector) = settings.tls(home)?;
        let secret = join::read(&LocalCertificate::at(&home.fleet()).authority_key())?;
        let shared = SharedRecords::new(secret.as_bytes());
        let store = FleetStore::open(&settings, home, secret.as_bytes())?;
        let hardware = engine.probe().accelerator.to_string();
        let about = NodeRecord {
            fingerprint: settings.fingerprint.clone(),
            hardware: hardware.clone(),
            address: settings.address.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
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
            shared,
            store,
            tls,
        }))
    }

    /// For the address where other nodes connect.
    pub fn tls(&self) -> Tls {
        self.tls.clone()
    }

    /// Makes a server a node, before it serves.
    pub fn attach(self: &Arc<Self>, app: &App) {
        // A server has one fleet.
        let _ = app.dialect_state::<Attached>().0.set(self.clone());
    }

    /// The fleet that a server is a node of.
    pub(crate) fn of(app: &App) -> Option<Arc<Self>> {
        app.dialect_state::<Attached>().0.get().cloned()
    }

    /// Stays a member, shares tokens with the others and makes snapshots durable, until the future is dropped.
    pub async fn keep(&self, app: &App) {
        if self.settings.runs_engine {
            engine::wait_until_ready(self.membership.ledger()).await;
        }
        tokio::join!(self.membership.keep(), self.share_accounts(app), self.keep_durable(app));
    }

    pub(crate) async fn answer<F>(&self, app: &App, request: Request, answer_here: impl Fn(Request) -> F) -> Response
    where
        F: Future<Output = Result<Response, Infallible>>,
    {
        let route = request.extensions().get::<Peer>().map(|peer| peer.route().clone());
        let is_passed_on = route.as_ref().is_some_and(|route| route.is_passed_on);
        let sender = route.map_or(Sender::Client, |route| route.sender);
        let is_about_sandbox = named::sandbox(&request).is_some();
        let shape = e2b::shape_of_client(&request);
        let answer_here = &answer_here;
        let here = move |request| async move { answer_here(request).await.unwrap_or_else(|never| match never {}) };
        let answered = match (&sender, request.method(), request.uri().path()) {
            (Sender::Stranger, &Method::POST, join::PATH) => join::answer(self, request).await,
            (Sender::Stranger, ..) => Err(ApiError::new(StatusCode::FORBIDDEN, "forbidden", "only nodes connect here")),
            (Sender::Node(machine), ..) if self.membership.has_removed(machine) => {
                Err(ApiError::new(StatusCode::FORBIDDEN, "node_removed", "this node was removed from the fleet"))
            }
            // What nodes ask each other is none of their clients' business.
            (Sender::Node(_), &Method::GET, health::PATH) if !is_passed_on => return health::answer(self),
            (Sender::Node(_), &Method::GET, place::PATH) if !is_passed_on => return place::answer(self, app, &request),
            (Sender::Node(_), &Method::GET, bring::PATH) if !is_passed_on => {
                return bring::answer(app, request.uri().query()).await;
            }
            (Sender::Node(_), &Method::GET, find::PATH) if !is_passed_on => return find::answer(app, &request),
            (Sender::Node(_), &Method::POST, path) if named::is_collection(path) && !is_about_sandbox => {
                chosen::create(self, app, request, here).await
            }
            (Sender::Node(_), ..) => return here(request).await,
            (Sender::Client, method, path) => match self.owner(app, &request) {
                Ok(Some(owner)) => self.forward(app, &owner, request).await,
                // A server in a sandbox may have the same paths as the API.
                Ok(None) if is_about_sandbox => return here(request).await,
                Ok(None) if method == Method::POST && named::is_collection(path) => {
                    place::create(self, app, request, here).await
                }
                Ok(None) if method == Method::GET && named::is_collection(path) => {
                    return list::list(self, app, request, here).await;
                }
                Ok(None) if method == Method::GET && list::is_of_nodes(path) => {
                    return list::list_of_nodes(self, app, request, here).await;
                }
                Ok(None) if method == Method::POST && matches!(path, "/v1/volumes" | "/volumes") => {
                    volumes::create(self, app, request, here).await
                }
                Ok(None) if method == Method::GET && path == templates::PATH => {
                    return templates::list(self, app, request, here).await;
                }
                Ok(None) if accounts::may_change(method, path) => {
                    let response = here(request).await;
                    if response.status().is_success() {
                        self.publish_accounts(app).await;
                    }
                    return response;
                }
                Ok(None) => self.answer_by_name(app, request, here).await,
                Err(error) => Err(error),
            },
        };
        let render = |error| ApiError { shape, ..error }.render(&sandling_service::random::hex::<8>());
        answered.unwrap_or_else(render)
    }

    /// Answers here, unless the request names something that only another node has.
    async fn answer_by_name<F>(
        &self,
        app: &App,
        request: Request,
        here: impl Fn(Request) -> F,
    ) -> Result<Response, ApiError>
    where
        F: Future<Output = Response>,
    {
        let (parts, body) = request.into_parts();
        let owner = match Sought::missing_here(app, &parts) {
            Some(sought) => match sought.owner(self, app).await {
                Ok(Some(owner)) => Some(owner),
                // Its node is down or was removed, but the fleet knows what is durable.
                neither => match self.answer_for_stored(app, &sought, &parts).await? {
                    Some(response) => return Ok(response),
                    None => neither?,
                },
            },
            None => None,
        };
        let request = Request::from_parts(parts, body);
        match owner {
            Some(owner) => self.forward(app, &owner, request).await,
            None => Ok(here(request).await),
        }
    }

    /// All members but this node, by name.
    pub(super) fn others(&self) -> Vec<Member> {
        let mut members = self.membership.members();
        members.retain(|member| *member.name != *self.membership.name());
        members
    }

    /// The other node that a request about a sandbox is for, by its id. `None` if this node answers.
    fn owner(&self, app: &App, request: &Request) -> Result<Option<Member>, ApiError> {
        let Some(id) = named::sandbox(request) else { return Ok(None) };
        let tag = id.node_tag();
        if tag == node_tag(self.membership.name()) || app.engine.get(&id).is_some() {
            return Ok(None);
        }
        // Without the list of nodes, an answer that the sandbox does not exist could be wrong.
        self.membership.by_tag(tag).map_err(|error| unavailable("cannot find the sandbox", &error.to_string()))
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
