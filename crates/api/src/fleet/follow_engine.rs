//! Which etcd the fleet uses, as nodes tell each other. After `sandling fleet rebuild` it is another one.
//!
//! The etcd of the highest generation is the fleet's. Nodes ask a few others every few seconds and tell those that know less,
//! so a node that was down learns it from any other. The node that runs the fleet's etcd asks all others before it starts it:
//! a machine that was lost and comes back does not start the old one.

use std::io;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use axum::Json;
use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use sandling_engine::with_causes;
use sandling_fleet::{Copies, Engine, Ledger};
use serde::{Deserialize, Serialize};

use super::engine::{EngineTurn, wait_until_ready};
use super::forward;
use super::known_nodes::KnownNode;
use super::member::{Fleet, unavailable};
use super::settings::FleetError;
use crate::auth::query_value;
use crate::error::ApiError;

/// What a node knows of etcd (GET), and that it has to use another one (POST).
pub(super) const PATH: &str = "/fleet/engine";
/// Starts an etcd without data.
pub(super) const START: &str = "/fleet/engine/start";
/// What a node remembers of etcd.
pub(super) const COPIES: &str = "/fleet/copies";

const ASK_EVERY: Duration = Duration::from_secs(5);
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// How many other nodes are asked in each round.
const ASKED: usize = 3;
/// How long an etcd for a rebuild runs before a node uses it. The command needs less.
const UNUSED_WITHIN: Duration = Duration::from_secs(180);

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct EngineState {
    pub(super) generation: u32,
    pub(super) engine: Vec<String>,
    /// Whether the node reaches it, if that was asked.
    #[serde(default)]
    pub(super) answers: bool,
}

#[derive(Serialize, Deserialize)]
pub(super) struct StartEngine {
    pub(super) generation: u32,
}

impl EngineState {
    pub(super) fn of(engine: &Engine, answers: bool) -> Self {
        let Engine { generation, endpoints } = engine.clone();
        Self { generation, engine: endpoints, answers }
    }

    pub(super) fn engine(&self) -> Engine {
        Engine { generation: self.generation, endpoints: self.engine.clone() }
    }
}

/// Whether the other nodes take this machine for one of the fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    Member,
    Removed,
}

enum Answer {
    Engine(Engine),
    Removed,
    /// The node is down, or of an earlier version.
    None,
}

impl Fleet {
    /// The etcd that the fleet uses.
    pub(super) fn engine(&self) -> Engine {
        (*self.membership.ledger().engine()).clone()
    }

    /// Learns of another etcd, and remembers where the other nodes are. Runs until the future is dropped.
    pub(super) async fn follow_engine(&self) {
        loop {
            self.remember_nodes();
            let mut nodes = self.known_nodes.all();
            fastrand::shuffle(&mut nodes);
            nodes.truncate(ASKED);
            self.ask_for_engine(nodes).await;
            self.correct_engine().await;
            self.write_late_copies().await;
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    fn remember_nodes(&self) {
        let is_gone = |known: &KnownNode| self.membership.has_removed(&known.fingerprint);
        let mut others = self.membership.machines();
        others.retain(|member| *member.name != *self.membership.name());
        self.known_nodes.learn(&others, is_gone);
    }

    /// Asks nodes which etcd the fleet uses, and follows the newest one. A node that knows less is told.
    pub(super) async fn ask_for_engine(&self, nodes: Vec<KnownNode>) -> Said {
        let asks = nodes.into_iter().map(|node| async move { (self.ask_one(&node).await, node) });
        let mut said = Said::Member;
        for (answer, node) in join_all(asks).await {
            let theirs = match answer {
                Answer::Engine(engine) => engine,
                Answer::Removed => {
                    said = Said::Removed;
                    continue;
                }
                Answer::None => continue,
            };
            if theirs.wins_over(&self.engine()) {
                if let Err(error) = self.switch_engine(theirs).await {
                    tracing::error!(
                        error = with_causes(&error),
                        "cannot follow the fleet to another etcd; tries again"
                    );
                }
            } else if self.engine().wins_over(&theirs) {
                let request = EngineState::of(&self.engine(), false);
                let request = Request::post(PATH).body(Body::from(serde_json::json!(request).to_string()));
                let request = request.expect("the path is valid");
                // What fails is tried again in a later round.
                let _ = forward::ask_node(&self.connector, &node.name, &node.record(), request).await;
            }
        }
        said
    }

    /// A node that changes to another etcd after the others may know what they do not. What fails is tried again later.
    async fn write_late_copies(&self) {
        let copies = || self.late_copies.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(late) = copies().clone() else { return };
        let written = late.write_late(self.membership.ledger(), self.membership.name()).await;
        let mut copies = copies();
        if written.is_ok() && *copies == Some(late) {
            *copies = None;
        }
    }

    async fn ask_one(&self, node: &KnownNode) -> Answer {
        let request = Request::get(PATH).body(Body::empty()).expect("the path is valid");
        let record = node.record();
        let asked = forward::ask_node(&self.connector, &node.name, &record, request);
        let Ok(Ok((status, body))) = tokio::time::timeout(ANSWER_WITHIN, asked).await else { return Answer::None };
        let refusal: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        match status {
            StatusCode::OK => match serde_json::from_slice::<EngineState>(&body) {
                Ok(state) => Answer::Engine(state.engine()),
                Err(_) => Answer::None,
            },
            StatusCode::FORBIDDEN if refusal["code"] == "node_removed" => Answer::Removed,
            _ => Answer::None,
        }
    }

    /// Uses another etcd from now on, also after a restart, unless this node's is newer.
    pub(super) async fn switch_engine(&self, to: Engine) -> Result<(), FleetError> {
        let mut running = self.own_engine.turn().await;
        let before = self.engine();
        if to.wins_over(&before) {
            self.use_engine(&to)?;
        } else if to != before {
            return Ok(());
        }
        // An earlier attempt may have stored the engine, and failed here.
        self.run_fleets_engine(&mut running).await
    }

    fn use_engine(&self, to: &Engine) -> Result<(), FleetError> {
        // A record of failover would bring back a sandbox that has ended since.
        let remembered = Copies::of(&self.membership, &self.moves);
        self.settings.store_engine(&self.home, to)?;
        self.membership.ledger().switch_to(to.clone());
        tracing::warn!(
            generation = to.generation,
            etcd = to.endpoints.join(", "),
            "the fleet was rebuilt with another etcd"
        );
        self.late_copies.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().merge(remembered);
        if let Some(store) = &self.store {
            store.read_again();
        }
        Ok(())
    }
}

pub(super) async fn answer(fleet: &Fleet, query: Option<&str>) -> Response {
    let is_probe = query_value(query, "probe") == "yes";
    if is_probe {
        // Who asks that may need the newest members, too.
        fleet.remember_nodes();
    }
    let answers = is_probe && fleet.membership.ledger().get("ready").await.is_ok();
    Json(EngineState::of(&fleet.engine(), answers)).into_response()
}

pub(super) async fn answer_switch(fleet: &Fleet, request: Request) -> Result<Response, ApiError> {
    let wanted: EngineState = read(request).await?;
    if wanted.engine.is_empty() {
        return Err(ApiError::bad_request("this names no etcd"));
    }
    let switched = fleet.switch_engine(wanted.engine()).await;
    switched.map_err(|error| unavailable("cannot use another etcd", &with_causes(&error)))?;
    Ok(Json(EngineState::of(&fleet.engine(), false)).into_response())
}

/// Starts an etcd that no node uses yet. The one that this node runs now, if it does, ends. It starts again if this fails, or if
/// this node does not use the new one soon.
pub(super) async fn answer_start(fleet: &Fleet, request: Request) -> Result<Response, ApiError> {
    let refused = |why: &str| ApiError::conflict("engine_refused", why);
    let StartEngine { generation } = read(request).await?;
    if generation <= fleet.engine().generation {
        return Err(refused("the fleet has an etcd of this generation already"));
    }
    let own = super::engine::address_of_own_engine(&fleet.settings.address);
    let own = own.ok_or_else(|| refused("this node's address has no port below 65535"))?;
    let engine = Engine { generation, endpoints: vec![own] };
    let mut running = fleet.own_engine.turn().await;
    running.correct_at(Instant::now() + UNUSED_WITHIN);
    if let Err(error) = start_empty(fleet, &mut running, &engine).await {
        // What fails is tried again in a later round.
        let _ = fleet.run_fleets_engine(&mut running).await;
        return Err(refused(&with_causes(&error)));
    }
    Ok(Json(EngineState::of(&engine, true)).into_response())
}

async fn start_empty(fleet: &Fleet, running: &mut EngineTurn<'_>, engine: &Engine) -> Result<(), FleetError> {
    running.stop().await;
    let left = super::engine::directory(&fleet.home, engine.generation);
    match std::fs::remove_dir_all(&left) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => return Err(FleetError::File { path: left, source }),
        _ => {}
    }
    running.start(&fleet.settings, &fleet.home, engine).await?;
    let ledger = fleet.settings.ledger_at(&fleet.home, engine.clone())?;
    match wait_until_ready(&ledger).await {
        true => Ok(()),
        false => Err(FleetError::Refused("etcd does not start; the server's log says why".to_owned())),
    }
}

/// One node is asked for what the store has, too.
pub(super) async fn answer_copies(fleet: &Fleet, query: Option<&str>) -> Result<Response, ApiError> {
    let mut copies = Copies::of(&fleet.membership, &fleet.moves).with_failovers(fleet.failover_records());
    let is_with_store = query_value(query, "store") == "yes";
    if let Some(store) = fleet.store.as_ref().filter(|_| is_with_store) {
        let records = async {
            store.blobs.check().await?;
            store.blobs.records().await
        };
        let records = records.await;
        copies.merge(records.map_err(|error| unavailable("cannot read its store", &with_causes(&error)))?.into());
    }
    Ok(Json(copies).into_response())
}

async fn read<T: for<'de> Deserialize<'de>>(request: Request) -> Result<T, ApiError> {
    let body = crate::extract::read(request.into_body()).await?;
    serde_json::from_slice(&body).map_err(|error| ApiError::bad_request(error.to_string()))
}
