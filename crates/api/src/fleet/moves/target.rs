//! Taking a sandbox or a snapshot that another node moves here.

use std::error::Error;

use axum::Json;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures_util::stream::{FuturesUnordered, StreamExt};
use http_body_util::{BodyExt, Limited};
use sandling_engine::{Arrived, MoveError, MovePlan, SandboxId, SnapshotInfo, with_causes};
use sandling_fleet::{LedgerError, Revision};
use sandling_service::{CarriedService, WorkspaceName};
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, mpsc, oneshot};

use super::super::member::Fleet;
use super::super::place;
use super::gate::Insiders;
use super::settle::{AGAIN_AFTER, log};
use crate::app::App;
use crate::piped;

pub(in crate::fleet) const OFFER: &str = "/fleet/moves/offer";
pub(in crate::fleet) const TAKE: &str = "/fleet/moves/take";
const LARGEST_PLAN: usize = 64 << 20;

#[derive(Serialize, Deserialize)]
pub(super) struct Offer {
    pub(super) cost: u64,
    /// The files that this node needs, by their numbers.
    pub(super) lacks: Vec<usize>,
}

/// The sandbox's record in the ledger, as it was when the move began.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct TakeQuery {
    pub(super) at: Option<i64>,
    #[serde(default)]
    pub(super) generation: u64,
}

/// Answers whether this node takes something.
pub(in crate::fleet) async fn answer_offer(fleet: &Fleet, app: &App, request: Request) -> Response {
    match offer(fleet, app, request).await {
        Ok(offer) => Json(offer).into_response(),
        Err(why) => refusal(why),
    }
}

fn refusal(why: String) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, why).into_response()
}

async fn offer(fleet: &Fleet, app: &App, request: Request) -> Result<Offer, String> {
    if fleet.membership.writer().is_none() {
        return Err("it has lost its lease".to_owned());
    }
    if fleet.membership.is_draining() {
        return Err("it is draining".to_owned());
    }
    let cost = place::load(app)?;
    let body = Limited::new(request.into_body(), LARGEST_PLAN).collect().await.map_err(|error| error.to_string())?;
    let plan: MovePlan = serde_json::from_slice(&body.to_bytes()).map_err(|error| error.to_string())?;
    if let Some(workspace) = plan.workspace() {
        let known = WorkspaceName::parse(workspace).is_some_and(|name| app.service.workspaces.find(&name).is_ok());
        if !known {
            return Err(format!("it has no workspace {workspace}"));
        }
    }
    let engine = app.engine.clone();
    let lacks = tokio::task::spawn_blocking(move || engine.can_take(&plan)).await;
    let lacks = lacks.map_err(|error| error.to_string())?.map_err(|error| with_causes(&error))?;
    Ok(Offer { cost, lacks })
}

/// Takes what another node streams here, and answers when it is this node's.
pub(in crate::fleet) async fn answer_take(fleet: &Fleet, app: &App, request: Request) -> Response {
    match take(fleet, app, request).await {
        Ok(()) => StatusCode::OK.into_response(),
        Err(why) => refusal(why),
    }
}

async fn take(fleet: &Fleet, app: &App, request: Request) -> Result<(), String> {
    let query: TakeQuery = serde_urlencoded::from_str(request.uri().query().unwrap_or_default())
        .map_err(|error: serde_urlencoded::de::Error| error.to_string())?;
    let (engine, decisions) = (app.engine.clone(), fleet.undecided.sender());
    // The source may go away at any moment, but what has arrived must be decided about.
    let unpack = move |incoming| {
        let arrived = engine.unpack(incoming)?;
        let (answer, answered) = oneshot::channel();
        // The receiver exists as long as the fleet.
        let _ = decisions.send(Undecided { arrived, query, answer });
        Ok(answered)
    };
    let answered = piped::incoming(request.into_body(), unpack).await.map_err(|error| error.to_string())?;
    let answered = answered.map_err(|error: MoveError| with_causes(&error))?;
    answered.await.unwrap_or_else(|_| Err("the server is closing".to_owned()))
}

/// Something that has arrived, before it is known whose it is.
pub(super) struct Undecided {
    arrived: Arrived,
    query: TakeQuery,
    answer: oneshot::Sender<Result<(), String>>,
}

/// What has arrived and waits for [`Fleet::decide_arrivals`].
pub(in crate::fleet) struct Arrivals {
    sender: mpsc::UnboundedSender<Undecided>,
    receiver: Mutex<mpsc::UnboundedReceiver<Undecided>>,
}

impl Default for Arrivals {
    fn default() -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        Self { sender, receiver: Mutex::new(receiver) }
    }
}

impl Arrivals {
    fn sender(&self) -> mpsc::UnboundedSender<Undecided> {
        self.sender.clone()
    }
}

impl Fleet {
    /// Decides about everything that arrives. Runs until the future is dropped.
    pub(in crate::fleet) async fn decide_arrivals(&self, app: &App) {
        let mut arrivals = self.undecided.receiver.lock().await;
        let mut deciding = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some(undecided) = arrivals.recv() => deciding.push(async move {
                    let Undecided { arrived, query, answer } = undecided;
                    // The source may be gone. It asks the ledger then.
                    let _ = answer.send(self.decide(app, arrived, &query).await);
                }),
                Some(()) = deciding.next(), if !deciding.is_empty() => {}
            }
        }
    }

    async fn decide(&self, app: &App, arrived: Arrived, query: &TakeQuery) -> Result<(), String> {
        let Arrived { sandbox, snapshot, token, from, more } = arrived;
        if let Some(snapshot) = snapshot {
            self.take_record_over(&snapshot, &from).await;
        }
        let Some(id) = sandbox else { return Ok(()) };
        // Other nodes may send requests as soon as the ledger says where it is.
        let _closed = self.gate.close(&id, Insiders::AreIgnored);
        let kept = serde_json::from_value::<CarriedService>(more).map_err(|error| error.to_string());
        let kept = kept.and_then(|carried| app.service.unpack(&carried).map_err(|error| error.to_string()));
        let is_ours = kept.is_ok() && self.claim(&id, query.at.map(Revision), query.generation, &token).await;
        self.finish_arrival(app, &id, is_ours).await;
        if is_ours {
            return Ok(());
        }
        Err(kept.err().unwrap_or_else(|| "the sandbox was taken back".to_owned()))
    }

    /// A snapshot that is durable stays so: its record is this node's before the other one deletes its copy. Returns only when
    /// the ledger has answered.
    pub(in crate::fleet) async fn take_record_over(&self, snapshot: &SnapshotInfo, from: &str) {
        let Some(store) = &self.store else { return };
        loop {
            match self.records().take_over(&snapshot.workspace, snapshot.id.as_str(), from).await {
                Ok(None) => return,
                Ok(Some(record)) => return store.note_durable(&snapshot.id, &snapshot.workspace, record.listed),
                // A newer version has written it. This node uploads the snapshot itself.
                Err(LedgerError::Unexpected(_)) => return,
                Err(_) => tokio::time::sleep(AGAIN_AFTER).await,
            }
        }
    }

    /// Admits an arrival or turns it away, once it is known whose it is. What fails is tried again: until then, requests about
    /// the sandbox wait.
    pub(in crate::fleet) async fn finish_arrival(&self, app: &App, id: &SandboxId, is_ours: bool) {
        loop {
            let finished = if is_ours { self.admit(app, id) } else { app.engine.turn_away(id).await };
            match finished {
                Ok(()) => return,
                Err(error) => log(id, &error),
            }
            tokio::time::sleep(AGAIN_AFTER).await;
        }
    }

    /// An arrival is this node's. It wakes in the background if it was in use.
    fn admit(&self, app: &App, id: &SandboxId) -> Result<(), MoveError> {
        let (sandbox, wakes) = app.engine.admit_arrival(id)?;
        if let Some(sandbox) = sandbox.filter(|_| wakes) {
            tokio::spawn(async move {
                if let Err(error) = sandbox.wake().await {
                    tracing::error!(sandbox = %sandbox.id(), error = &error as &dyn Error, "a sandbox has moved here and does not wake");
                }
            });
        }
        Ok(())
    }
}
