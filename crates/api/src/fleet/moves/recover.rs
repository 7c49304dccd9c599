//! After a restart: moves that were under way are finished or undone.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use sandling_engine::{Engine, SandboxId};

use super::super::member::Fleet;
use super::gate::{Closed, Gate, Insiders};
use super::settle::{AGAIN_AFTER, Expected};
use crate::app::App;

const LOOK_EVERY: Duration = Duration::from_secs(60);
/// How long others find out why a sandbox that had moved here has ended.
const FORGET_AFTER: Duration = Duration::from_secs(3600);

/// A move that was cut off. Requests about its sandbox wait.
pub(in crate::fleet) struct CutOff {
    pub(super) id: SandboxId,
    /// The token of an arrival.
    pub(super) token: Option<String>,
    pub(super) closed: Option<Closed>,
}

/// The moves of an engine that has just been opened.
pub(in crate::fleet) fn cut_off(engine: &Engine, gate: &Gate) -> Vec<CutOff> {
    let departed = engine.departed().into_iter().map(|id| (id, None));
    let arrived = engine.arrivals().into_iter().map(|(id, token)| (id, Some(token)));
    let closed = |id: &SandboxId| gate.close(id, Insiders::AreIgnored);
    departed.chain(arrived).map(|(id, token)| CutOff { closed: closed(&id), id, token }).collect()
}

impl Fleet {
    pub(in crate::fleet) async fn recover_moves(&self, app: &App) {
        let cut_off = std::mem::take(&mut *self.cut_off.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        let each = cut_off.into_iter().map(|CutOff { id, token, closed }| async move {
            match token {
                Some(token) => self.recover_arrival(app, &id, &token).await,
                None => drop(self.settle(app, &id, Expected::TakenBack).await),
            }
            drop(closed);
        });
        futures_util::future::join_all(each).await;
    }

    /// A write of the process that received it is refused in this epoch, so the record does not become ours any more.
    async fn recover_arrival(&self, app: &App, id: &SandboxId, token: &str) {
        loop {
            if self.membership.writer().is_some()
                && let Ok(found) = self.moves.whereabouts(self.membership.ledger(), id.as_str()).await
            {
                let is_ours =
                    found.record.is_some_and(|record| record.node == self.membership.name() && record.token == token);
                return self.finish_arrival(app, id, is_ours).await;
            }
            tokio::time::sleep(AGAIN_AFTER).await;
        }
    }

    /// Removes the records of sandboxes that have ended here, after others had time to ask why. A node that is down may be one
    /// that they have left, and does not know that yet: without the record it would take them for its own. Runs until the
    /// future is dropped.
    pub(in crate::fleet) async fn forget_ended(&self, app: &App) {
        let mut ended: HashMap<String, Instant> = HashMap::new();
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let here = self.moves.at(self.membership.name());
            let lives = |id: &str| {
                let id = SandboxId::parse(id);
                id.is_some_and(|id| {
                    app.engine.get(&id).is_some() || app.engine.arrivals().iter().any(|(other, _)| *other == id)
                })
            };
            let gone: Vec<String> = here.into_iter().filter(|id| !lives(id)).collect();
            ended.retain(|id, _| gone.contains(id));
            if !gone.is_empty() && !self.membership.is_complete().await.unwrap_or(false) {
                ended.clear();
                continue;
            }
            for id in gone {
                if ended.entry(id.clone()).or_insert_with(Instant::now).elapsed() >= FORGET_AFTER {
                    // What fails is tried again in the next round.
                    let _ = self.moves.forget(&self.membership, &id).await;
                }
            }
        }
    }
}
