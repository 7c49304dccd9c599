//! Moving one sandbox or snapshot away from this node.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use futures_util::future::join_all;
use http_body_util::BodyExt;
use sandling_engine::{Consignment, MovePlan, Sandbox, SandboxId, SnapshotInfo, State, with_causes};
use sandling_fleet::{Member, Protocol, Whereabouts};
use sandling_protocol::ExecState;
use sandling_service::random;

use super::super::find::Sought;
use super::super::member::Fleet;
use super::gate::Insiders;
use super::settle::{Departed, Expected};
use super::step::IDLE_FOR;
use super::target::{OFFER, Offer, TAKE, TakeQuery};
use crate::app::App;
use crate::piped;

const OFFER_WITHIN: Duration = Duration::from_secs(10);
/// No stream takes longer.
const STREAM_WITHIN: Duration = Duration::from_secs(1800);

/// Why something is still here. It is tried again later.
pub(super) type Why = String;

/// A node that takes something, and what it lacks of it.
struct Accepted {
    member: Member,
    lacks: Vec<usize>,
}

impl Fleet {
    pub(super) async fn move_sandbox(&self, app: &App, sandbox: &Arc<Sandbox>, insiders: Insiders) -> Result<(), Why> {
        let id = sandbox.id();
        if self.targets().is_empty() {
            return Err("no other node takes sandboxes".to_owned());
        }
        // One that no node takes is not disturbed.
        self.find_target(app, &plan(app, id).await?, needed_protocol(sandbox)).await?;
        let Some(_closed) = self.gate.close(id, insiders) else { return Err("it is in use".to_owned()) };
        let was_in_use = self.put_to_sleep(sandbox, insiders).await?;
        let info = sandbox.info();
        // Only a request to resume would wake it, so nobody could tell why it sleeps.
        let sleeps_until_resumed = info.settings.auto_resume == Some(false);
        let wakes = was_in_use.is_some_and(|in_use| in_use || sleeps_until_resumed);
        let moved = self.move_sleeping(app, sandbox, wakes).await;
        if moved.is_err()
            && wakes
            && let Some(sandbox) = app.engine.get(id)
            && let Err(error) = sandbox.wake().await
        {
            tracing::warn!(sandbox = %id, error = &error as &dyn std::error::Error, "it does not wake after a move that failed");
        }
        moved
    }

    /// Hibernates a sandbox that does not yet. Returns whether a command ran in it, or nothing if it hibernated already.
    async fn put_to_sleep(&self, sandbox: &Sandbox, insiders: Insiders) -> Result<Option<bool>, Why> {
        sandbox.steady().await;
        let state = sandbox.info().state;
        if state == State::Hibernated {
            return Ok(None);
        }
        let waits = insiders == Insiders::KeepItOpen;
        if waits && state != State::Paused && sandbox.idle_for() < IDLE_FOR {
            return Err("it is in use".to_owned());
        }
        let in_use = state != State::Paused && {
            let commands = sandbox.list_execs().await.unwrap_or_default();
            commands.iter().any(|command| matches!(command.state, ExecState::Running)) || !waits
        };
        if waits && in_use {
            return Err("a command runs in it".to_owned());
        }
        sandbox.hibernate().await.map_err(|error| format!("it does not hibernate: {error}"))?;
        Ok(Some(in_use))
    }

    async fn move_sleeping(&self, app: &App, sandbox: &Sandbox, wakes: bool) -> Result<(), Why> {
        let id = sandbox.id();
        let before = self.moves.whereabouts(self.membership.ledger(), id.as_str()).await;
        let before = before.map_err(|error| error.to_string())?;
        app.engine.depart(id).await.map_err(|error| error.to_string())?;
        let sent = self.send_sandbox(app, sandbox, &before, wakes).await;
        let expected = if sent.is_ok() { Expected::Moved } else { Expected::TakenBack };
        match (self.settle(app, id, expected).await, sent) {
            (Departed::Left(node), _) => {
                tracing::info!(sandbox = %id, node, "a sandbox has moved");
                Ok(())
            }
            (Departed::Stayed, Err(why)) => Err(why),
            (Departed::Stayed, Ok(())) => Err("it was taken back".to_owned()),
        }
    }

    async fn send_sandbox(&self, app: &App, sandbox: &Sandbox, before: &Whereabouts, wakes: bool) -> Result<(), Why> {
        let plan = plan(app, sandbox.id()).await?;
        let accepted = self.find_target(app, &plan, needed_protocol(sandbox)).await?;
        let more = app.service.pack(sandbox.id().as_str()).map_err(|error| error.to_string())?;
        let more = serde_json::to_value(more).map_err(|error| error.to_string())?;
        let (token, from) = (random::hex::<16>(), self.membership.name().to_owned());
        let generation = before.record.as_ref().map_or(0, |record| record.generation) + 1;
        let query = TakeQuery { at: before.at.map(|at| at.0), generation };
        self.stream(app, plan, accepted, Consignment { token, wakes, from, more }, &query).await
    }

    /// Copies a snapshot to another node, and deletes it here.
    pub(super) async fn move_snapshot(&self, app: &App, snapshot: &SnapshotInfo) -> Result<(), Why> {
        let id = snapshot.id.as_str();
        // An earlier attempt may have copied it.
        let known = Sought::snapshot(&snapshot.workspace, id).owner(self, app).await;
        if known.map_err(|error| error.message)?.is_none() {
            let engine = app.engine.clone();
            let id = snapshot.id.clone();
            let plan = tokio::task::spawn_blocking(move || engine.plan_snapshot_move(&id)).await;
            let plan = plan.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
            let accepted = self.find_target(app, &plan, Protocol::FIRST.current).await?;
            let (token, from) = (random::hex::<16>(), self.membership.name().to_owned());
            let with = Consignment { token, wakes: false, from, more: serde_json::Value::Null };
            self.stream(app, plan, accepted, with, &TakeQuery::default()).await?;
        }
        let deleted = app.engine.snapshots().delete(&snapshot.workspace, &snapshot.id).await;
        deleted.map_err(|error| error.to_string())
    }

    /// The nodes that may take something from this one.
    fn targets(&self) -> Vec<Member> {
        let mut targets = self.others();
        targets.retain(|member| !member.record.draining && member.record.hardware == self.hardware);
        targets
    }

    /// The cheapest of the nodes that take it, and speak this protocol.
    async fn find_target(&self, app: &App, plan: &MovePlan, protocol: u32) -> Result<Accepted, Why> {
        let body = serde_json::to_vec(plan).map_err(|error| error.to_string())?;
        let asks = self.targets().into_iter().map(|member| {
            let body = Body::from(body.clone());
            async move {
                if member.record.protocol.current < protocol {
                    return (Err("it must be upgraded first, because it does not know failover".to_owned()), member);
                }
                let offer = tokio::time::timeout(OFFER_WITHIN, self.ask_offer(app, &member, body)).await;
                (offer.unwrap_or_else(|_| Err("did not answer in time".to_owned())), member)
            }
        });
        let (mut best, mut refusals): (Option<(u64, Accepted)>, Vec<String>) = (None, Vec::new());
        for (offer, member) in join_all(asks).await {
            match offer {
                Ok(Offer { cost, lacks }) if best.as_ref().is_none_or(|(least, _)| cost < *least) => {
                    best = Some((cost, Accepted { member, lacks }));
                }
                Ok(_) => {}
                Err(why) => refusals.push(format!("node {}: {why}", member.name)),
            }
        }
        let none = || if refusals.is_empty() { "no other node takes it".to_owned() } else { refusals.join("; ") };
        best.map(|(_, accepted)| accepted).ok_or_else(none)
    }

    async fn ask_offer(&self, app: &App, member: &Member, body: Body) -> Result<Offer, Why> {
        let request = Request::post(OFFER).header("host", "fleet").body(body).map_err(|error| error.to_string())?;
        let response = self.forward(app, member, request).await.map_err(|error| error.message)?;
        let status = response.status();
        let bytes = response.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
        match status {
            StatusCode::OK => serde_json::from_slice(&bytes).map_err(|_| "gave an unreadable answer".to_owned()),
            _ => Err(String::from_utf8_lossy(&bytes).into_owned()),
        }
    }

    async fn stream(
        &self,
        app: &App,
        plan: MovePlan,
        to: Accepted,
        with: Consignment,
        query: &TakeQuery,
    ) -> Result<(), Why> {
        let engine = app.engine.clone();
        let Accepted { member, lacks } = to;
        let body =
            piped::outgoing(move |out| engine.pack(&plan, lacks, with, out).map_err(std::io::Error::other)).await;
        let body = body.map_err(|_| "its files cannot be read".to_owned())?;
        let path = format!("{TAKE}?{}", serde_urlencoded::to_string(query).unwrap_or_default());
        let request = Request::post(path).header("host", "fleet").body(body).map_err(|error| error.to_string())?;
        let answered = tokio::time::timeout(STREAM_WITHIN, self.forward(app, &member, request)).await;
        let response = answered.map_err(|_| format!("node {} did not take it in time", member.name))?;
        let response = response.map_err(|error| error.message)?;
        if response.status() == StatusCode::OK {
            return Ok(());
        }
        let why = response.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
        Err(format!("node {}: {}", member.name, String::from_utf8_lossy(&why)))
    }
}

/// A node of an earlier version would take a sandbox with failover without that.
fn needed_protocol(sandbox: &Sandbox) -> u32 {
    if sandbox.has_failover() { Protocol::FAILOVER } else { Protocol::FIRST.current }
}

async fn plan(app: &App, id: &SandboxId) -> Result<MovePlan, Why> {
    let (engine, id) = (app.engine.clone(), id.clone());
    let plan = tokio::task::spawn_blocking(move || engine.plan_move(&id)).await;
    plan.map_err(|error| error.to_string())?.map_err(|error| with_causes(&error))
}
