//! A sandbox with failover stands still while this node has no lease, and until it is known whose the sandbox is.
//!
//! The lease is asked for each request and for each frame of a guest, because this process may have stood still itself. The
//! machine is stopped a moment later.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use sandling_engine::{FailedOver, SandboxId, SnapshotId, with_causes};
use sandling_fleet::{FailoverRecord, Held, Turns};

use super::super::member::{Fleet, unavailable};
use super::Hold;
use crate::app::App;
use crate::error::ApiError;

const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Sandboxes that are checked at the same time.
const AT_ONCE: usize = 8;
/// How long the answer to a deletion waits for the ledger. What fails is tried again in the background.
const FORGET_WITHIN: Duration = Duration::from_secs(3);

impl Fleet {
    /// Whether a sandbox with failover may run here now. Without a point nobody can take it over, so it is held when it is seen
    /// first.
    pub(in crate::fleet) fn may_run(&self, id: &SandboxId) -> bool {
        let Some(me) = self.membership.writer() else { return false };
        let first = Hold { epoch: Some(me.epoch.0), turns: None };
        self.failover.held().entry(id.clone()).or_insert(first).epoch == Some(me.epoch.0)
    }

    /// Refuses a request about a sandbox that another node may have taken over.
    pub(in crate::fleet) fn check_fence(&self, app: &App, id: &SandboxId) -> Result<(), ApiError> {
        let has_failover = app.engine.get(id).is_some_and(|sandbox| sandbox.has_failover());
        if !has_failover || self.may_run(id) {
            return Ok(());
        }
        let why = "its node has lost touch with the fleet, and another one may take it over";
        Err(unavailable("cannot reach the sandbox", why))
    }

    /// Removes the record of a sandbox that a request has ended, so that no node brings it back.
    pub(in crate::fleet) async fn forget_if_ended(&self, app: &App, id: &SandboxId) {
        let is_ours = |record: FailoverRecord| record.node == self.settings.name;
        if self.failover.known.get(id.as_str()).is_some_and(is_ours) && !app.engine.knows(id) {
            let _ = tokio::time::timeout(FORGET_WITHIN, self.failovers().forget(id.as_str())).await;
        }
    }

    /// Stops and continues the sandboxes of this node. Runs until the future is dropped.
    pub(in crate::fleet) async fn keep_fence(&self, app: &Arc<App>) {
        // A check may take long, and another sandbox must stop meanwhile.
        tokio::join!(self.stop_unheld(app), self.check_unheld(app));
    }

    async fn stop_unheld(&self, app: &App) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if app.engine.is_closing() {
                continue;
            }
            let mut stopping = app.engine.with_failover();
            stopping.retain(|sandbox| !self.may_run(sandbox.id()));
            stopping.retain(|sandbox| self.failover.fenced().insert(sandbox.id().clone()));
            join_all(stopping.iter().map(|sandbox| async {
                sandbox.set_fence(true).await;
                // It may have been held since then.
                if !self.failover.fenced().contains(sandbox.id()) {
                    sandbox.set_fence(false).await;
                }
            }))
            .await;
        }
    }

    async fn check_unheld(&self, app: &Arc<App>) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if app.engine.is_closing() {
                continue;
            }
            let here = app.engine.with_failover();
            self.failover.held().retain(|id, _| app.engine.knows(id));
            let unheld: Vec<_> = here.iter().map(|sandbox| sandbox.id()).filter(|id| !self.is_held(id)).collect();
            for some in unheld.chunks(AT_ONCE) {
                join_all(some.iter().map(|id| self.check(app, id))).await;
            }
        }
    }

    fn is_held(&self, id: &SandboxId) -> bool {
        let Some(me) = self.membership.writer() else { return false };
        let known = self.failover.known.get(id.as_str());
        let is_ours = known.is_none_or(|record| record.node == me.node && record.epoch == me.epoch.0);
        // Asked once in each process, so that a later answer can be told from one of before.
        let was_asked = self.failover.held().get(id).is_some_and(|hold| hold.turns.is_some());
        is_ours && was_asked && self.may_run(id) && !self.failover.fenced().contains(id)
    }

    /// Finds out whose a sandbox is. Without an answer, it stays as it is.
    async fn check(&self, app: &Arc<App>, id: &SandboxId) {
        let last = self.failover.held().get(id).and_then(|hold| hold.turns);
        match self.failovers().hold(id.as_str(), last).await {
            Ok(Held::Mine(record, turns)) => self.go_on(app, id, record, turns).await,
            Ok(Held::Elsewhere(node)) => match app.engine.throw_away(id, &node).await {
                Ok(()) => {
                    self.failover.fenced().remove(id);
                    tracing::warn!(sandbox = %id, node, "another node has taken the sandbox over; its machine here was thrown away");
                }
                Err(error) => {
                    tracing::error!(sandbox = %id, error = with_causes(&error), "a sandbox that another node has cannot be thrown away; it is tried again");
                }
            },
            Ok(Held::Fenced) | Err(_) => {}
        }
    }

    async fn go_on(&self, app: &Arc<App>, id: &SandboxId, record: Option<Box<FailoverRecord>>, turns: Turns) {
        let epoch = record.as_ref().map(|record| record.epoch);
        let Some(epoch) = epoch.or_else(|| Some(self.membership.writer()?.epoch.0)) else { return };
        let turns = Some(turns);
        self.failover.held().insert(id.clone(), Hold { epoch: Some(epoch), turns });
        let point = record.as_ref().and_then(|record| {
            let last = FailedOver { from: self.settings.name.clone(), to: record.point.at.parse().ok()? };
            Some((SnapshotId::parse(&record.point.snapshot)?, last))
        });
        if let Err(error) = app.engine.confirm(id, point.as_ref().map(|(id, last)| (id, last.clone()))) {
            tracing::error!(sandbox = %id, error = with_causes(&error), "a sandbox cannot be taken over from the last server; it is tried again");
            self.failover.held().insert(id.clone(), Hold { epoch: None, turns });
            return;
        }
        if self.failover.fenced().remove(id)
            && let Some(sandbox) = app.engine.get(id)
        {
            sandbox.set_fence(false).await;
        }
    }
}
