//! Makes snapshots and hibernated sandboxes durable: uploads them in the background, oldest first, and then writes the
//! record that says so. The record goes when the snapshot does.
//!
//! Nothing is remembered between two starts: what should be durable follows from the engine's rows, and what is follows from
//! the ledger. So an upload that was interrupted begins again, and finds what the store has already.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use sandling_engine::{ExportError, SandboxInfo, SnapshotId, SnapshotInfo, State as SandboxState, with_causes};
use sandling_fleet::store::{
    Digest, OfTemplate, Scope, SnapshotRecord, SnapshotRecords, StoreError, StoredSnapshot, UploadFile, Uploaded,
};
use sandling_fleet::{BootClock, EtcdLedger, LedgerError};
use sandling_wire::Durability;

use super::durable::{FleetStore, Noticed, Stored, made_on};
use super::member::Fleet;
use crate::app::App;
use crate::convert::IntoWire;

const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Other processes of this home change rows unnoticed, so all rows are read from time to time.
const READ_ROWS_EVERY: Duration = Duration::from_secs(60);
/// etcd may have lost its data, or got an older copy back.
const READ_RECORDS_EVERY: Duration = Duration::from_secs(3600);
const AGAIN_AFTER: Duration = Duration::from_secs(5);
const CHECK_EVERY: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub(super) enum UploadError {
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error("cannot read which snapshots this node has")]
    Rows(#[from] sandling_engine::StoreError),
    #[error("this node has lost its lease, or another node has changed the record")]
    Fenced,
}

impl UploadError {
    /// Whether the snapshot is the reason, so that others can still be uploaded.
    fn is_of_snapshot(&self) -> bool {
        matches!(self, Self::Export(_) | Self::Store(StoreError::File { .. } | StoreError::TooLarge { .. }))
    }
}

/// Something that should be durable.
pub(super) struct Wanted {
    pub(super) info: SnapshotInfo,
    pub(super) listed: bool,
    /// A file that describes the sandbox, if this is its failover point.
    pub(super) description: Option<PathBuf>,
}

/// What the description of a sandbox is called among the files of its point.
pub(super) const DESCRIPTION: &str = "sandbox";

/// What decides which snapshots should be durable. While it is the same, no rows have to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    snapshot_changes: u64,
    /// The images of hibernated sandboxes, with their workspaces. Those with failover are uploaded as points.
    images: BTreeSet<(String, SnapshotId)>,
}

impl Seen {
    fn now(app: &App) -> Self {
        let is_image =
            |sandbox: &SandboxInfo| sandbox.state == SandboxState::Hibernated && sandbox.settings.failover.is_none();
        let asleep = app.engine.list().into_iter().filter(is_image);
        let images = asleep.filter_map(|sandbox| Some((sandbox.workspace, sandbox.standing.restored?))).collect();
        Self { snapshot_changes: app.engine.snapshots().changes(), images }
    }
}

/// Something that was done, and is done again after a change or a while.
struct Done<T> {
    with: Option<(T, Instant)>,
}

impl<T: PartialEq> Done<T> {
    fn never() -> Self {
        Self { with: None }
    }

    fn is_due(&self, with: &T) -> bool {
        self.with.as_ref().is_none_or(|(known, at)| known != with || at.elapsed() >= READ_ROWS_EVERY)
    }

    fn done(&mut self, with: T) {
        self.with = Some((with, Instant::now()));
    }
}

impl FleetStore {
    async fn watch_health(&self) {
        loop {
            let problem = self.blobs.check().await.err().map(|error| with_causes(&error));
            let pause = if problem.is_some() { AGAIN_AFTER } else { CHECK_EVERY };
            self.report(Noticed::ByCheck, problem);
            tokio::time::sleep(pause).await;
        }
    }
}

impl Fleet {
    pub(super) fn records(&self) -> SnapshotRecords<'_, EtcdLedger, BootClock> {
        SnapshotRecords { membership: &self.membership, shared: &self.shared }
    }

    /// Uploads the snapshots of this node that the store does not have yet, and removes the records of those that are gone.
    /// Runs until the future is dropped.
    pub(super) async fn keep_durable(&self, app: &App) {
        let Some(store) = &self.store else { return };
        store.packed.forget_old();
        let (uploads, removals) = (self.keep_uploading(app, store), self.keep_removing(app, store));
        tokio::join!(uploads, removals, store.watch_health(), self.sweep_store(app, store));
    }

    async fn keep_uploading(&self, app: &App, store: &FleetStore) {
        let mut done = Done::never();
        loop {
            let _ = tokio::time::timeout(LOOK_EVERY, store.news.notified()).await;
            app.engine.settled().await;
            let seen = Seen::now(app);
            if self.membership.writer().is_none() || app.engine.is_closing() || !done.is_due(&seen) {
                continue;
            }
            match self.upload_missing(app, store, &seen).await {
                Ok(()) => {
                    store.report(Noticed::ByUpload, None);
                    done.done(seen);
                }
                Err(error) => {
                    store.report(Noticed::ByUpload, Some(with_causes(&error)));
                    tokio::time::sleep(AGAIN_AFTER).await;
                }
            }
        }
    }

    /// Beside the uploads, which may take long: a snapshot that was deleted must not stay in lists.
    async fn keep_removing(&self, app: &App, store: &FleetStore) {
        let mut done = Done::never();
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            app.engine.settled().await;
            let Some(durable) = store.progress().durable.as_ref().map(|durable| durable.len()) else { continue };
            let seen = (Seen::now(app), durable);
            // An engine that closes lists fewer and fewer sandboxes.
            if self.membership.writer().is_none() || app.engine.is_closing() || !done.is_due(&seen) {
                continue;
            }
            match self.remove_deleted(app, store, &seen.0).await {
                Ok(()) => done.done(seen),
                Err(error) => {
                    let why = with_causes(&error);
                    tracing::warn!(why, "cannot remove the records of deleted snapshots now; it is tried again");
                    tokio::time::sleep(AGAIN_AFTER).await;
                }
            }
        }
    }

    async fn upload_missing(&self, app: &App, store: &FleetStore, seen: &Seen) -> Result<(), UploadError> {
        self.read_records(store).await?;
        for next in missing(store, wanted(app, seen)?) {
            match self.upload(app, store, &next).await {
                Err(error) if error.is_of_snapshot() => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(snapshot = %next.info.id, error, "a snapshot cannot be made durable");
                    store.progress().unusable.insert(next.info.id.clone());
                    store.changed.send_replace(());
                }
                uploaded => drop(uploaded?),
            }
            store.one_less_waits();
            if app.engine.is_closing() || Seen::now(app) != *seen {
                // An older one may be missing now, or one that was is not wanted any more.
                store.news.notify_one();
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reads what the ledger says about this node's snapshots.
    async fn read_records(&self, store: &FleetStore) -> Result<(), UploadError> {
        let is_known = |at: Instant| at.elapsed() < READ_RECORDS_EVERY;
        if store.progress().read_at.is_some_and(is_known) {
            return Ok(());
        }
        let own = self.records().all().await?.into_iter().filter(|(_, _, record)| record.node == self.settings.name);
        let known = own.filter_map(|(workspace, id, record)| {
            Some((SnapshotId::parse(&id)?, Stored { workspace, listed: record.listed }))
        });
        let mut progress = store.progress();
        progress.durable = Some(known.collect());
        progress.read_at = Some(Instant::now());
        progress.unusable.clear();
        Ok(())
    }

    async fn remove_deleted(&self, app: &App, store: &FleetStore, seen: &Seen) -> Result<(), UploadError> {
        // A snapshot whose row cannot be read may be one of those.
        let Some(listed) = app.engine.snapshots().list_all()? else { return Ok(()) };
        let mut wanted: BTreeSet<_> = listed.into_iter().map(|info| info.id).collect();
        wanted.extend(seen.images.iter().map(|(_, image)| image.clone()));
        wanted.extend(app.engine.snapshots().points()?.into_iter().map(|point| point.snapshot));
        let durable = store.progress().durable.clone().unwrap_or_default();
        for (id, stored) in durable.into_iter().filter(|(id, _)| !wanted.contains(id)) {
            if !self.records().remove(&stored.workspace, id.as_str(), &self.settings.name).await? {
                return Err(UploadError::Fenced);
            }
            if let Some(durable) = &mut store.progress().durable {
                durable.remove(&id);
            }
        }
        Ok(())
    }

    /// Returns the name of the manifest, or nothing if the snapshot was deleted meanwhile.
    pub(super) async fn upload(
        &self,
        app: &App,
        store: &FleetStore,
        wanted: &Wanted,
    ) -> Result<Option<Digest>, UploadError> {
        let begun = Instant::now();
        let manifest = loop {
            match self.try_upload(app, store, wanted).await? {
                // Only what the sweep has removed is sent again.
                Some((Uploaded::SweptMeanwhile, _)) => {}
                Some((Uploaded::Fenced, _)) => return Err(UploadError::Fenced),
                Some((Uploaded::Durable, manifest)) => break manifest,
                None => return Ok(None),
            }
        };
        let Wanted { info, listed, .. } = wanted;
        store.note_durable(&info.id, &info.workspace, *listed);
        store.report(Noticed::ByUpload, None);
        tracing::info!(snapshot = %info.id, took = ?begun.elapsed(), "a snapshot is durable");
        Ok(Some(manifest))
    }

    /// Nothing if the snapshot is gone.
    async fn try_upload(
        &self,
        app: &App,
        store: &FleetStore,
        wanted: &Wanted,
    ) -> Result<Option<(Uploaded, Digest)>, UploadError> {
        let Wanted { info, listed, description } = wanted;
        // Not even one part goes to another fleet's store.
        store.blobs.check().await?;
        let (_, at) = self.records().find(&info.workspace, info.id.as_str()).await?;
        let before = self.records().sweeps_before().await?;
        let snapshots = app.engine.snapshots().clone();
        let taken = info.clone();
        let parts = tokio::task::spawn_blocking(move || snapshots.parts(&taken)).await;
        let parts = parts.map_err(|error| ExportError::Io(std::io::Error::other(error)))??;
        let mut files = Vec::new();
        for file in &parts.files {
            let scope = if file.is_of_template { Scope::Templates } else { Scope::Workspace(info.workspace.clone()) };
            let (name, path, content) = (file.name.clone(), file.path.clone(), file.content.clone());
            let upload = UploadFile { name, scope, path, content };
            files.push(store.blobs.upload(&upload, &store.packed).await?);
        }
        if let Some(path) = description {
            let (name, scope) = (DESCRIPTION.to_owned(), Scope::Workspace(info.workspace.clone()));
            let upload = UploadFile { name, scope, path: path.clone(), content: None };
            files.push(store.blobs.upload(&upload, &store.packed).await?);
        }
        let made_on = made_on(&parts.made_on);
        let (image, bake) = (info.image.to_string(), info.bake.clone());
        let template = OfTemplate { name: info.template.clone(), image, bake };
        let ids = [info.id.to_string(), info.workspace.clone()];
        let manifest = StoredSnapshot::new(ids, template, made_on.clone(), parts.manifest.clone(), files);
        let name = store.blobs.put_manifest(&manifest).await?;
        let mut view = info.clone().into_wire();
        view.durability = Durability::Durable;
        let record = SnapshotRecord {
            name: info.name.clone(),
            listed: *listed,
            view: serde_json::to_value(view).unwrap_or_default(),
            ..SnapshotRecord::new(&self.settings.name, name, made_on.fingerprint(), info.sandbox.to_string())
        };
        if app.engine.snapshots().find_any(&info.workspace, &info.id)?.is_none() {
            return Ok(None);
        }
        let uploaded = self.records().put_uploaded(&info.workspace, info.id.as_str(), at, &record, before).await?;
        Ok(Some((uploaded, record.manifest)))
    }
}

/// What has to be uploaded, oldest first.
fn missing(store: &FleetStore, wanted: BTreeMap<SnapshotId, Wanted>) -> Vec<Wanted> {
    let mut progress = store.progress();
    let is_missing = |wanted: &Wanted| {
        let stored = progress.durable.as_ref().and_then(|durable| durable.get(&wanted.info.id));
        stored.is_none_or(|stored| stored.listed != wanted.listed) && !progress.unusable.contains(&wanted.info.id)
    };
    let mut missing: Vec<_> = wanted.into_values().filter(is_missing).collect();
    missing.sort_by_key(|wanted| wanted.info.created_at);
    progress.waiting = missing.len();
    missing
}

/// The snapshots in lists and the images of hibernated sandboxes, as far as their rows can be read. A snapshot without memory
/// boots with its template's kernel, which the store does not have.
fn wanted(app: &App, seen: &Seen) -> Result<BTreeMap<SnapshotId, Wanted>, UploadError> {
    let snapshots = app.engine.snapshots();
    let mut wanted = BTreeMap::new();
    let mut add = |info: SnapshotInfo, listed| {
        if info.has_memory() {
            wanted.entry(info.id.clone()).or_insert(Wanted { info, listed, description: None });
        }
    };
    snapshots.all_listed()?.into_iter().for_each(|info| add(info, true));
    let images = seen.images.iter().filter_map(|(workspace, image)| snapshots.find_any(workspace, image).ok()?);
    images.for_each(|info| add(info, false));
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_after_a_change_and_after_a_while() {
        let seen = |snapshot_changes| Seen { snapshot_changes, images: BTreeSet::new() };
        let mut done = Done::never();
        assert!(done.is_due(&seen(0)), "the first time");
        done.done(seen(0));
        assert!(!done.is_due(&seen(0)) && done.is_due(&seen(1)));
        let woken = Seen { images: BTreeSet::from([("team".to_owned(), image())]), ..seen(0) };
        assert!(done.is_due(&woken));
        done.with = Instant::now().checked_sub(READ_ROWS_EVERY).map(|at| (seen(0), at));
        assert!(done.is_due(&seen(0)));
    }

    fn image() -> SnapshotId {
        SnapshotId::parse("0e0b5a3c-7a0b-4e57-9f52-0f7d6f1f3a11").unwrap()
    }

    #[test]
    fn a_file_that_cannot_be_read_is_not_the_stores_fault() {
        let source = std::io::Error::other("disk");
        assert!(UploadError::Store(StoreError::File { path: "pages".into(), source }).is_of_snapshot());
        let timed_out = StoreError::TimedOut { store: "s3://x".to_owned(), what: "pack".to_owned() };
        assert!(!UploadError::Store(timed_out).is_of_snapshot() && !UploadError::Fenced.is_of_snapshot());
    }
}
