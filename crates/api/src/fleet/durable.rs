//! Makes snapshots and hibernated sandboxes durable: uploads them in the background, oldest first, and then writes the
//! record that says so.
//!
//! Nothing is remembered between two starts: what should be durable follows from the engine's rows, and what is follows from
//! the ledger. So an upload that was interrupted begins again, and finds what the store has already.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandling_engine::{ExportError, HostNeeds, SnapshotId, SnapshotInfo, State as SandboxState};
use sandling_fleet::store::{
    Blobs, MadeOn, OfTemplate, PackedFiles, Scope, SnapshotRecord, SnapshotRecords, StoreError, StoredSnapshot,
    UploadFile,
};
use sandling_fleet::{BootClock, EtcdLedger, LedgerError};
use sandling_wire::{Durability, Home};
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};

use super::member::Fleet;
use super::settings::{FleetError, FleetSettings};
use crate::app::App;
use crate::convert::IntoWire;

const LOOK_EVERY: Duration = Duration::from_secs(2);
const AGAIN_AFTER: Duration = Duration::from_secs(5);
const CHECK_EVERY: Duration = Duration::from_secs(30);

/// What a node says about the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreHealth {
    /// Such as `s3://BUCKET/PREFIX`.
    pub store: String,
    /// Why it cannot be used now.
    pub problem: Option<String>,
    /// How many snapshots of this node, those of hibernated sandboxes included, are durable.
    pub durable: usize,
    /// How many still have to be uploaded.
    pub waiting: usize,
}

#[derive(Debug, thiserror::Error)]
enum UploadError {
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error("this node has lost its lease")]
    Fenced,
}

/// Something that should be durable.
struct Wanted {
    info: SnapshotInfo,
    listed: bool,
}

#[derive(Clone, PartialEq, Eq)]
struct Stored {
    workspace: String,
    listed: bool,
}

#[derive(Default)]
struct Progress {
    /// What the ledger says about this node's snapshots. `None` before it is read.
    durable: Option<HashMap<SnapshotId, Stored>>,
    waiting: usize,
    /// What cannot be stored, which is not tried again.
    unusable: HashSet<SnapshotId>,
    problem: Option<String>,
}

/// This node's part of the store.
pub(super) struct FleetStore {
    pub(super) blobs: Blobs,
    packed: PackedFiles,
    progress: Mutex<Progress>,
    news: Notify,
    /// Changes when a snapshot has become durable, or cannot.
    changed: watch::Sender<()>,
    pub(super) fetching: Mutex<HashMap<SnapshotId, Arc<tokio::sync::Mutex<()>>>>,
}

impl FleetStore {
    pub(super) fn open(settings: &FleetSettings, home: &Home, secret: &[u8]) -> Result<Option<Self>, FleetError> {
        let Some(location) = &settings.store else { return Ok(None) };
        let blobs = Blobs::open(location, secret).map_err(FleetError::Store)?;
        Ok(Some(Self {
            blobs,
            packed: PackedFiles::new(home.fleet().join("packed")),
            progress: Mutex::default(),
            news: Notify::new(),
            changed: watch::Sender::new(()),
            fetching: Mutex::default(),
        }))
    }

    pub(super) fn health(&self) -> StoreHealth {
        let progress = self.progress();
        StoreHealth {
            store: self.blobs.shown().to_owned(),
            problem: progress.problem.clone(),
            durable: progress.durable.as_ref().map_or(0, HashMap::len),
            waiting: progress.waiting,
        }
    }

    fn is_durable(&self, id: &SnapshotId) -> bool {
        self.progress().durable.as_ref().is_some_and(|durable| durable.contains_key(id))
    }

    /// Notes whether the store works, and logs when that changes.
    pub(super) fn report(&self, problem: Option<String>) {
        let before = std::mem::replace(&mut self.progress().problem, problem.clone());
        match (before, problem) {
            (Some(_), None) => tracing::info!(store = self.blobs.shown(), "the store works again"),
            (before, Some(problem)) if before.as_ref() != Some(&problem) => {
                tracing::warn!(problem, "snapshots stay local now; uploads go on when the store works");
            }
            _ => {}
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn watch_health(&self) {
        loop {
            let problem = self.blobs.check().await.err().map(|error| text(&error));
            let pause = if problem.is_some() { AGAIN_AFTER } else { CHECK_EVERY };
            self.report(problem);
            tokio::time::sleep(pause).await;
        }
    }
}

impl Fleet {
    pub(super) fn records(&self) -> SnapshotRecords<'_, EtcdLedger, BootClock> {
        SnapshotRecords { membership: &self.membership, shared: &self.shared }
    }

    /// Uploads the snapshots of this node that the store does not have yet. Runs until the future is dropped.
    pub(super) async fn keep_durable(&self, app: &App) {
        let Some(store) = &self.store else { return };
        store.packed.forget_old();
        let uploads = async {
            loop {
                let _ = tokio::time::timeout(LOOK_EVERY, store.news.notified()).await;
                if self.membership.writer().is_none() {
                    continue;
                }
                if let Err(error) = self.make_all_durable(app, store).await {
                    store.report(Some(text(&error)));
                    tokio::time::sleep(AGAIN_AFTER).await;
                }
            }
        };
        tokio::join!(uploads, store.watch_health(), self.sweep_store(store));
    }

    async fn make_all_durable(&self, app: &App, store: &FleetStore) -> Result<(), UploadError> {
        if store.progress().durable.is_none() {
            let own =
                self.records().all().await?.into_iter().filter(|(_, _, record)| record.node == self.settings.name);
            let known = own.filter_map(|(workspace, id, record)| {
                Some((SnapshotId::parse(&id)?, Stored { workspace, listed: record.listed }))
            });
            store.progress().durable = Some(known.collect());
        }
        loop {
            app.engine.settled().await;
            let Some(wanted) = wanted(app).filter(|_| !app.engine.is_closing()) else { return Ok(()) };
            self.forget_deleted(store, &wanted).await?;
            let mut missing = self.missing(store, wanted).into_iter();
            let Some(next) = missing.next() else { return Ok(()) };
            match self.upload(app, store, &next).await {
                Ok(()) => {}
                Err(UploadError::Export(error)) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(snapshot = %next.info.id, error, "a snapshot cannot be made durable");
                    store.progress().unusable.insert(next.info.id.clone());
                }
                Err(error) => return Err(error),
            }
            store.changed.send_replace(());
        }
    }

    /// What has to be uploaded, oldest first.
    fn missing(&self, store: &FleetStore, wanted: BTreeMap<SnapshotId, Wanted>) -> Vec<Wanted> {
        let mut progress = store.progress();
        let durable = progress.durable.clone().unwrap_or_default();
        let is_missing = |wanted: &Wanted| {
            let stored = durable.get(&wanted.info.id);
            stored.is_none_or(|stored| stored.listed != wanted.listed) && !progress.unusable.contains(&wanted.info.id)
        };
        let mut missing: Vec<_> = wanted.into_values().filter(is_missing).collect();
        missing.sort_by_key(|wanted| wanted.info.created_at);
        progress.waiting = missing.len();
        missing
    }

    async fn forget_deleted(
        &self,
        store: &FleetStore,
        wanted: &BTreeMap<SnapshotId, Wanted>,
    ) -> Result<(), UploadError> {
        let durable = store.progress().durable.clone().unwrap_or_default();
        for (id, stored) in durable.into_iter().filter(|(id, _)| !wanted.contains_key(id)) {
            if !self.records().remove(&stored.workspace, id.as_str()).await? {
                return Err(UploadError::Fenced);
            }
            store.progress().durable.get_or_insert_default().remove(&id);
        }
        Ok(())
    }

    async fn upload(&self, app: &App, store: &FleetStore, wanted: &Wanted) -> Result<(), UploadError> {
        let Wanted { info, listed } = wanted;
        let begun = std::time::Instant::now();
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
        if !self.records().put(&info.workspace, info.id.as_str(), &record).await? {
            return Err(UploadError::Fenced);
        }
        let stored = Stored { workspace: info.workspace.clone(), listed: *listed };
        store.progress().durable.get_or_insert_default().insert(info.id.clone(), stored);
        store.report(None);
        tracing::info!(snapshot = %info.id, took = ?begun.elapsed(), "a snapshot is durable");
        Ok(())
    }

    /// Whether a snapshot of this node survives the loss of this node.
    pub(crate) fn durability(&self, id: &SnapshotId) -> Durability {
        let is_durable = self.store.as_ref().is_some_and(|store| store.is_durable(id));
        if is_durable { Durability::Durable } else { Durability::Local }
    }

    pub(crate) fn has_store(&self) -> bool {
        self.store.is_some()
    }

    /// Waits until a snapshot is durable. False if it cannot become durable.
    pub(crate) async fn wait_until_durable(&self, id: &SnapshotId) -> bool {
        let Some(store) = &self.store else { return false };
        let mut changed = store.changed.subscribe();
        store.news.notify_one();
        loop {
            if store.is_durable(id) {
                return true;
            }
            if store.progress().unusable.contains(id) || changed.changed().await.is_err() {
                return false;
            }
        }
    }
}

pub(super) fn made_on(needs: &HostNeeds) -> MadeOn {
    let HostNeeds { accelerator, cpu_model, device_model, emulator } = needs.clone();
    MadeOn { accelerator, cpu_model, device_model, emulator }
}

/// The snapshots in lists and the images of hibernated sandboxes. `None` if the rows cannot be read now. A snapshot without
/// memory boots with its template's kernel, which the store does not have.
fn wanted(app: &App) -> Option<BTreeMap<SnapshotId, Wanted>> {
    let snapshots = app.engine.snapshots();
    let mut wanted = BTreeMap::new();
    let mut add = |info: SnapshotInfo, listed| {
        if info.has_memory() {
            wanted.entry(info.id.clone()).or_insert(Wanted { info, listed });
        }
    };
    snapshots.list_all().ok()??.into_iter().for_each(|info| add(info, true));
    for sandbox in app.engine.list().into_iter().filter(|sandbox| sandbox.state == SandboxState::Hibernated) {
        let Some(image) = &sandbox.standing.restored else { continue };
        if let Some(info) = snapshots.find_any(&sandbox.workspace, image).ok()? {
            add(info, false);
        }
    }
    Some(wanted)
}

/// An error with its causes.
pub(super) fn text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}
