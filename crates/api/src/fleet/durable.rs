//! Which snapshots and hibernated sandboxes of this node are durable, as this node knows it. `uploads.rs` makes them durable.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sandling_engine::{HostNeeds, SnapshotId};
use sandling_fleet::store::{Blobs, MadeOn, PackedFiles};
use sandling_wire::{Durability, Home};
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};

use super::member::Fleet;
use super::settings::{FleetError, FleetSettings};

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What became of a snapshot that was to become durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waited {
    Durable,
    /// It cannot be stored.
    Local,
    /// It was deleted meanwhile.
    Gone,
}

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

/// What the ledger says about a durable snapshot of this node.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) workspace: String,
    pub(super) listed: bool,
}

#[derive(Default)]
pub(super) struct Progress {
    /// What the ledger says about this node's snapshots. `None` before it is read.
    pub(super) durable: Option<HashMap<SnapshotId, Stored>>,
    pub(super) read_at: Option<Instant>,
    pub(super) waiting: usize,
    /// What cannot be stored, which is not tried again before the ledger is read again.
    pub(super) unusable: HashSet<SnapshotId>,
    problems: Problems,
}

/// What does not work now, by who has noticed it. Each of them only takes back what it has said itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Problems {
    /// The store does not answer, or is another fleet's.
    check: Option<String>,
    upload: Option<String>,
}

/// Who notices whether the store works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Noticed {
    ByCheck,
    ByUpload,
}

impl Problems {
    fn set(&mut self, by: Noticed, problem: Option<String>) {
        match by {
            Noticed::ByCheck => self.check = problem,
            Noticed::ByUpload => self.upload = problem,
        }
    }

    /// A store that does not answer is why uploads fail.
    fn shown(&self) -> Option<&String> {
        self.check.as_ref().or(self.upload.as_ref())
    }
}

/// This node's part of the store.
pub(super) struct FleetStore {
    pub(super) blobs: Blobs,
    pub(super) packed: PackedFiles,
    progress: Mutex<Progress>,
    /// Wakes the uploads.
    pub(super) news: Notify,
    /// Changes when a snapshot has become durable, or cannot.
    pub(super) changed: watch::Sender<()>,
    pub(super) fetching: Mutex<HashMap<SnapshotId, Arc<tokio::sync::Mutex<()>>>>,
}

impl FleetStore {
    pub(super) fn open(settings: &FleetSettings, home: &Home, secret: &[u8]) -> Result<Option<Self>, FleetError> {
        let Some(location) = &settings.store else { return Ok(None) };
        let blobs = Blobs::open(location, secret).map_err(FleetError::Store)?;
        Ok(Some(Self::new(blobs, PackedFiles::new(home.fleet().join("packed")))))
    }

    fn new(blobs: Blobs, packed: PackedFiles) -> Self {
        let (progress, fetching) = Default::default();
        Self { blobs, packed, progress, news: Notify::new(), changed: watch::Sender::new(()), fetching }
    }

    pub(super) fn health(&self) -> StoreHealth {
        let progress = self.progress();
        StoreHealth {
            store: self.blobs.shown().to_owned(),
            problem: progress.problems.shown().cloned(),
            durable: progress.durable.as_ref().map_or(0, HashMap::len),
            waiting: progress.waiting,
        }
    }

    fn is_durable(&self, id: &SnapshotId) -> bool {
        self.progress().durable.as_ref().is_some_and(|durable| durable.contains_key(id))
    }

    /// Lets the uploads read from the ledger again what is durable, because it is another ledger.
    pub(super) fn read_again(&self) {
        self.progress().read_at = None;
        self.news.notify_one();
    }

    pub(super) fn one_less_waits(&self) {
        let mut progress = self.progress();
        progress.waiting = progress.waiting.saturating_sub(1);
    }

    /// Notes that the ledger says that a snapshot of this node is durable.
    pub(super) fn note_durable(&self, id: &SnapshotId, workspace: &str, listed: bool) {
        // Before the records are read there is nothing to add to.
        if let Some(durable) = &mut self.progress().durable {
            durable.insert(id.clone(), Stored { workspace: workspace.to_owned(), listed });
        }
        self.changed.send_replace(());
    }

    /// Notes whether the store works, and logs when that changes.
    pub(super) fn report(&self, by: Noticed, problem: Option<String>) {
        let (before, now) = {
            let problems = &mut self.progress().problems;
            let before = problems.shown().cloned();
            problems.set(by, problem);
            (before, problems.shown().cloned())
        };
        match (before, now) {
            (Some(_), None) => tracing::info!(store = self.blobs.shown(), "the store works again"),
            (before, Some(problem)) if before.as_ref() != Some(&problem) => {
                tracing::warn!(problem, "snapshots stay local now; uploads go on when the store works");
            }
            _ => {}
        }
    }

    pub(super) fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FleetStore {
    async fn wait_until_durable(&self, id: &SnapshotId, exists: impl Fn() -> bool) -> Waited {
        let mut changed = self.changed.subscribe();
        self.news.notify_one();
        loop {
            if self.is_durable(id) {
                return Waited::Durable;
            }
            if self.progress().unusable.contains(id) {
                return Waited::Local;
            }
            if !exists() {
                return Waited::Gone;
            }
            // No upload tells of a snapshot that is deleted.
            let _ = tokio::time::timeout(LOOK_EVERY, changed.changed()).await;
        }
    }
}

impl Fleet {
    /// Whether a snapshot of this node survives the loss of this node.
    pub(crate) fn durability(&self, id: &SnapshotId) -> Durability {
        let is_durable = self.store.as_ref().is_some_and(|store| store.is_durable(id));
        if is_durable { Durability::Durable } else { Durability::Local }
    }

    pub(crate) fn has_store(&self) -> bool {
        self.store.is_some()
    }

    /// Waits until a snapshot is durable, cannot become durable, or does not exist any more.
    pub(crate) async fn wait_until_durable(&self, id: &SnapshotId, exists: impl Fn() -> bool) -> Waited {
        match &self.store {
            Some(store) => store.wait_until_durable(id, exists).await,
            None => Waited::Local,
        }
    }
}

pub(super) fn made_on(needs: &HostNeeds) -> MadeOn {
    let HostNeeds { accelerator, cpu_model, device_model, emulator } = needs.clone();
    MadeOn { accelerator, cpu_model, device_model, emulator }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use sandling_fleet::store::StoreLocation;

    use super::*;

    fn store(dir: &tempfile::TempDir) -> FleetStore {
        let location = StoreLocation::new(dir.path().to_str().unwrap(), None, None).unwrap();
        FleetStore::new(Blobs::open(&location, b"secret").unwrap(), PackedFiles::new(dir.path().join("packed")))
    }

    #[test]
    fn a_store_that_answers_hides_no_upload_that_fails_and_the_other_way_round() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir);
        let problem = || store.health().problem;
        store.report(Noticed::ByUpload, Some("the bucket is full".to_owned()));
        store.report(Noticed::ByCheck, None);
        assert_eq!(problem().as_deref(), Some("the bucket is full"));
        store.report(Noticed::ByCheck, Some("it does not answer".to_owned()));
        assert_eq!(problem().as_deref(), Some("it does not answer"));
        store.report(Noticed::ByUpload, None);
        assert_eq!(problem().as_deref(), Some("it does not answer"));
        store.report(Noticed::ByCheck, None);
        assert_eq!(problem(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_a_snapshot_that_is_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir);
        store.progress().durable = Some(HashMap::new());
        let id = SnapshotId::parse("0e0b5a3c-7a0b-4e57-9f52-0f7d6f1f3a11").unwrap();
        let exists = AtomicBool::new(true);
        let waiting = store.wait_until_durable(&id, || exists.load(Ordering::SeqCst));
        let deleting = async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            exists.store(false, Ordering::SeqCst);
        };
        let within = tokio::time::timeout(Duration::from_secs(20), async { tokio::join!(waiting, deleting).0 });
        assert_eq!(within.await, Ok(Waited::Gone));
        store.note_durable(&id, "default", true);
        assert_eq!(store.wait_until_durable(&id, || true).await, Waited::Durable);
    }
}
