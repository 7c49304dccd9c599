//! Takes over the sandboxes of nodes that are lost, a few at a time.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use sandling_engine::{Arrived, SandboxId, SnapshotId, with_causes};
use sandling_fleet::store::FetchFile;
use sandling_fleet::{Absences, FailoverRecord, Revision, TookOver};
use sandling_service::{CarriedService, WorkspaceName, random};

use super::super::bring::{Peers, stored_file};
use super::super::durable::FleetStore;
use super::super::member::Fleet;
use super::super::moves::Insiders;
use super::super::uploads::DESCRIPTION;
use super::Hold;
use crate::app::App;

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Sandboxes that are taken over at the same time.
const AT_ONCE: usize = 2;
/// The pause after one that failed. Another node tries meanwhile.
const AGAIN_AFTER: Duration = Duration::from_secs(20);
/// The pause after an attempt to write the records that was not answered.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// A sandbox whose owner is lost, and the revision of its record.
type Lost = (String, FailoverRecord, Revision);

impl Fleet {
    /// Runs until the future is dropped.
    pub(in crate::fleet) async fn take_over_lost(&self, app: &Arc<App>) {
        let Some(store) = &self.store else { return };
        let (mut absences, mut failed) = (Absences::default(), HashMap::<String, Instant>::new());
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let mut due = absences.due(&self.failovers(), &self.hardware);
            if app.engine.is_closing() || self.membership.is_draining() {
                continue;
            }
            failed.retain(|_, at| at.elapsed() < AGAIN_AFTER);
            due.retain(|(id, record, _)| !failed.contains_key(id) && self.can_restore(app, &record.point.made_on));
            due.truncate(AT_ONCE);
            let taking = due.iter().map(|lost| async move { (lost, self.take_over(app, store, lost).await) });
            for ((id, record, _), outcome) in join_all(taking).await {
                match outcome {
                    Ok(true) => {
                        tracing::warn!(
                            sandbox = id,
                            from = record.node,
                            point = record.point.at,
                            "took over the sandbox of a node that is lost"
                        );
                    }
                    Ok(false) => {
                        failed.insert(id.clone(), Instant::now());
                    }
                    Err(why) => {
                        tracing::warn!(
                            sandbox = id,
                            from = record.node,
                            why,
                            "cannot take over the sandbox of a node that is lost; it is tried again"
                        );
                        failed.insert(id.clone(), Instant::now());
                    }
                }
            }
        }
    }

    /// False if another node has it.
    async fn take_over(&self, app: &Arc<App>, store: &FleetStore, lost: &Lost) -> Result<bool, String> {
        let (sandbox, record, at) = lost;
        let id = SandboxId::parse(sandbox).ok_or("it has a strange ID")?;
        let workspace = WorkspaceName::parse(&record.workspace).ok_or("its workspace has a strange name")?;
        if app.service.workspaces.find(&workspace).is_err() {
            return Err(format!("this node has no workspace {workspace}"));
        }
        let snapshot = SnapshotId::parse(&record.point.snapshot).ok_or("its point has a strange ID")?;
        let _closed = self.gate.close(&id, Insiders::AreIgnored).ok_or("it is moving")?;
        self.bring_point(app, store, &workspace, &snapshot, record).await?;
        let description = self.fetch_description(app, store, &snapshot, record).await?;
        // From here on nothing sweeps the snapshot.
        app.engine.snapshots().keep_point(workspace.as_str(), &id, &snapshot).map_err(|error| error.to_string())?;
        let (engine, arriving, token) = (app.engine.clone(), id.clone(), random::hex::<16>());
        let arrived = tokio::task::spawn_blocking({
            let token = token.clone();
            move || engine.arrive_at_point(&description, &arriving, &token)
        });
        let arrived = arrived.await.map_err(|error| error.to_string())?.map_err(|error| with_causes(&error))?;
        let is_ours = self.claim_point(app, arrived, &id, *at, &token).await;
        if let (Ok(true), Ok(Some(info))) = (&is_ours, app.engine.snapshots().find_any(workspace.as_str(), &snapshot)) {
            self.take_record_over(&info, &record.node).await;
        }
        self.finish_arrival(app, &id, *is_ours.as_ref().unwrap_or(&false)).await;
        is_ours
    }

    /// Becomes the owner of what has arrived. Returns only when the ledger has answered.
    async fn claim_point(
        &self,
        app: &App,
        arrived: Arrived,
        id: &SandboxId,
        at: Revision,
        token: &str,
    ) -> Result<bool, String> {
        let carried: CarriedService = serde_json::from_value(arrived.more).map_err(|error| error.to_string())?;
        app.service.unpack(&carried).map_err(|error| error.to_string())?;
        loop {
            match self.failovers().take_over(id.as_str(), at, token).await {
                Ok(TookOver::Mine) => break,
                Ok(TookOver::Other) => return Ok(false),
                Ok(TookOver::Fenced) | Err(_) => tokio::time::sleep(ASK_AGAIN_AFTER).await,
            }
        }
        // Before it is admitted: this node may lose its lease at any moment.
        if let Some(record) = self.failover.known.get(id.as_str()) {
            self.failover.held().insert(id.clone(), Hold { epoch: Some(record.epoch), turns: None });
        }
        Ok(true)
    }

    async fn bring_point(
        &self,
        app: &App,
        store: &FleetStore,
        workspace: &WorkspaceName,
        snapshot: &SnapshotId,
        record: &FailoverRecord,
    ) -> Result<(), String> {
        let turn = store.turn(snapshot);
        let _turn = turn.lock().await;
        let here = app.engine.snapshots().fetched(workspace.as_str(), snapshot).map_err(|error| error.to_string())?;
        if here.is_some() {
            return Ok(());
        }
        let from = (&record.point.manifest, &*record.node);
        self.fetch(app, store, workspace, snapshot, from).await.map(drop).map_err(|error| with_causes(&error))
    }

    async fn fetch_description(
        &self,
        app: &App,
        store: &FleetStore,
        snapshot: &SnapshotId,
        record: &FailoverRecord,
    ) -> Result<Vec<u8>, String> {
        let manifest = store.blobs.manifest(&record.workspace, &record.point.manifest).await;
        let manifest = manifest.map_err(|error| with_causes(&error))?;
        let file = stored_file(&manifest, DESCRIPTION).ok_or("its point lacks the description of the sandbox")?;
        let dir = self.descriptions();
        sandling_wire::private_directory(&dir).map_err(|error| error.to_string())?;
        let to = dir.join(format!("{snapshot}.fetched"));
        let _ = fs::remove_file(&to);
        let peers = Peers::none(self, app, &record.workspace, snapshot);
        let fetched = store.blobs.fetch(&[FetchFile { file, to: to.clone() }], &peers).await;
        let text = fs::read(&to);
        let _ = fs::remove_file(&to);
        fetched.map_err(|error| with_causes(&error))?;
        text.map_err(|error| error.to_string())
    }
}
