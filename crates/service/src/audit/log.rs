//! Writing and reading the audit log.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use sandling_engine::owner::Owner;
use sandling_engine::store::StoreError;

use super::entry::{Actor, AuditEntry, AuditKind, AuditQuery, AuditResult, NewAudit, Recording};
use super::prune::AuditRetention;
use super::refusals::RefusalSampler;
use super::rows::PendingEntry;
use super::ship::{AuditTarget, ShipError, Shipper};
use super::verify::{self, ChainReport};
use super::worker::Worker;
use crate::store::Store;
use crate::workspaces::WorkspaceName;

/// A chain is pruned after every so many new entries.
const PRUNE_EVERY: u32 = 500;
/// The most entries that one query returns.
const LARGEST_ANSWER: u32 = 10_000;
/// How many entries wait in memory while the database cannot be written.
const MOST_WAITING: usize = 1_000;
/// The code of an action whose server died before it could write the result.
const INTERRUPTED: &str = "interrupted";

/// What happens to actions that cannot be audited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AuditPolicy {
    /// They run, and their entries are written when the database works again.
    #[default]
    BestEffort,
    /// They are refused. Each action is written down before it begins.
    Required,
}

#[derive(Debug, Clone, Default)]
pub struct AuditSettings {
    pub policy: AuditPolicy,
    pub retention: AuditRetention,
    /// Where entries are copied to as they are written.
    pub target: Option<AuditTarget>,
}

#[derive(Debug, thiserror::Error)]
pub enum AuditOpenError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the audit log cannot be copied")]
    Target(#[source] ShipError),
    #[error("the thread of the audit log cannot be started")]
    Thread(#[source] std::io::Error),
}

#[derive(Debug, thiserror::Error)]
pub enum AuditUnavailable {
    #[error("the audit log cannot be written")]
    Store(#[from] StoreError),
    #[error("the audit log cannot be copied to its target")]
    NotCopied,
}

/// The audit log of all workspaces of a home.
pub struct AuditLog {
    log: Arc<Log>,
    worker: Worker,
}

impl AuditLog {
    /// Opens the log, drops entries that are too old or too many, and completes entries of servers that died.
    pub(crate) fn open(store: Arc<Store>, owner: Arc<Owner>, settings: AuditSettings) -> Result<Self, AuditOpenError> {
        store.prune_all_audit(&settings.retention, Timestamp::now())?;
        let shipper = settings.target.map(Shipper::open).transpose().map_err(AuditOpenError::Target)?;
        let log = Arc::new(Log {
            store,
            owner,
            policy: settings.policy,
            retention: settings.retention,
            counters: Mutex::default(),
            refusals: RefusalSampler::default(),
            waiting: Mutex::default(),
            failures: AtomicU64::new(0),
            shipper: shipper.map(Mutex::new),
            not_copied: AtomicBool::new(false),
        });
        log.complete_interrupted()?;
        let worker = Worker::start({
            let log = log.clone();
            move |all| log.catch_up(all)
        });
        Ok(Self { log, worker: worker.map_err(AuditOpenError::Thread)? })
    }

    /// Whether every action must be announced with [`AuditLog::begin`].
    pub fn is_required(&self) -> bool {
        self.log.policy == AuditPolicy::Required
    }

    /// Must be called before an action. If the server requires that every action is audited, this writes it down, and
    /// an error means that the action must not happen. The number goes to [`AuditLog::record`].
    pub fn begin(&self, entry: NewAudit) -> Result<Option<i64>, AuditUnavailable> {
        if !self.is_required() {
            return Ok(None);
        }
        let begun = self.log.begin(entry);
        if begun.is_err() {
            self.log.failures.fetch_add(1, Ordering::Relaxed);
        }
        begun.map(Some)
    }

    /// Adds the entry of an action that was done or refused. If that fails, the entry waits in memory.
    pub fn record(&self, entry: NewAudit, begun: Option<i64>) {
        self.log.record(entry, begun, Timestamp::now());
        if self.log.shipper.is_some() {
            self.worker.wake();
        }
    }

    /// Forgets an action that was begun and has no entry of its own.
    pub fn forget(&self, begun: Option<i64>) {
        self.log.drop_intent(begun);
    }

    /// Writes what is still in memory and copies it to the target. Waits a few seconds at most.
    pub fn flush(&self) {
        self.worker.flush();
    }

    /// How often an entry could not be written.
    pub fn failures(&self) -> u64 {
        self.log.failures.load(Ordering::Relaxed)
    }

    /// The entries that match, oldest first.
    pub fn entries(&self, query: &AuditQuery) -> Result<Vec<AuditEntry>, StoreError> {
        self.log.store.audit_entries(&AuditQuery { limit: query.limit.min(LARGEST_ANSWER), ..query.clone() })
    }

    /// The code and output that were recorded with an entry of this workspace.
    pub fn recording(&self, workspace: &WorkspaceName, number: i64) -> Result<Option<Recording>, StoreError> {
        self.log.store.audit_recording(workspace, number)
    }

    /// Verifies the chains of a workspace, or of all. This may take a second for a long log.
    pub fn verify(&self, workspace: Option<&WorkspaceName>) -> Result<Vec<ChainReport>, StoreError> {
        let path = self.log.store.connection().path().unwrap_or_default().to_owned();
        verify::verify(&path, workspace)
    }
}

struct Log {
    store: Arc<Store>,
    owner: Arc<Owner>,
    policy: AuditPolicy,
    retention: AuditRetention,
    /// How many entries each chain has got since it was last pruned.
    counters: Mutex<HashMap<(WorkspaceName, AuditKind), u32>>,
    refusals: RefusalSampler,
    waiting: Mutex<Waiting>,
    failures: AtomicU64,
    shipper: Option<Mutex<Shipper>>,
    not_copied: AtomicBool,
}

/// Entries that could not be written yet.
#[derive(Default)]
struct Waiting {
    entries: VecDeque<PendingEntry>,
    /// How many entries of each workspace did not fit in memory, and the last of them.
    lost: HashMap<WorkspaceName, (NewAudit, u32)>,
}

impl Log {
    fn begin(&self, entry: NewAudit) -> Result<i64, AuditUnavailable> {
        if self.not_copied.load(Ordering::Relaxed) {
            return Err(AuditUnavailable::NotCopied);
        }
        Ok(self.store.add_intent(self.owner.id(), &entry.tamed(), Timestamp::now())?)
    }

    fn record(&self, entry: NewAudit, intent: Option<i64>, time: Timestamp) {
        let entry = entry.tamed();
        if entry.kind() == AuditKind::Refusal && !self.refusals.admit(&entry, time) {
            return self.drop_intent(intent);
        }
        self.write(PendingEntry { entry, time, count: 1, intent });
    }

    fn drop_intent(&self, intent: Option<i64>) {
        if let Some(Err(error)) = intent.map(|intent| self.store.drop_intent(intent)) {
            tracing::warn!(error = &error as &dyn std::error::Error, "cannot delete an intent of the audit log");
        }
    }

    /// Writes an entry after those that wait.
    fn write(&self, pending: PendingEntry) {
        let mut waiting = self.waiting();
        if waiting.entries.len() < MOST_WAITING {
            waiting.entries.push_back(pending);
        } else {
            let before = waiting.lost.get(&pending.entry.workspace).map_or(0, |(_, count)| *count);
            let lost = (pending.entry.clone(), before.saturating_add(pending.count));
            waiting.lost.insert(pending.entry.workspace, lost);
        }
        self.write_waiting(&mut waiting);
    }

    fn write_waiting(&self, waiting: &mut Waiting) {
        while let Some(next) = waiting.entries.front() {
            if let Err(error) = self.add(next) {
                self.failures.fetch_add(1, Ordering::Relaxed);
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    waiting = waiting.entries.len(),
                    "cannot write to the audit log"
                );
                return;
            }
            waiting.entries.pop_front();
            if waiting.entries.is_empty() {
                waiting.entries.extend(waiting.lost.drain().map(|(_, (last, count))| lost(last, count)));
            }
        }
    }

    fn add(&self, pending: &PendingEntry) -> Result<(), StoreError> {
        self.store.add_audit(pending)?;
        let (workspace, kind) = (&pending.entry.workspace, pending.entry.kind());
        if self.is_pruning_due(workspace, kind)
            && let Err(error) = self.store.prune_audit(workspace, kind, &self.retention, pending.time)
        {
            tracing::warn!(error = &error as &dyn std::error::Error, "cannot prune the audit log");
        }
        Ok(())
    }

    fn is_pruning_due(&self, workspace: &WorkspaceName, kind: AuditKind) -> bool {
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        let counter = counters.entry((workspace.clone(), kind)).or_default();
        *counter = (*counter + 1) % PRUNE_EVERY;
        *counter == 0
    }

    /// Writes what waits and what is due, and copies new entries to the target. With `all`, also summaries of minutes
    /// that have not ended.
    fn catch_up(&self, all: bool) {
        let now = Timestamp::now();
        for summary in self.refusals.take_due(now, all) {
            self.write(PendingEntry { entry: summary.entry, time: now, count: summary.count, intent: None });
        }
        self.write_waiting(&mut self.waiting());
        let Some(shipper) = &self.shipper else { return };
        let copied = shipper.lock().unwrap_or_else(PoisonError::into_inner).ship(&self.store);
        if let Err(error) = &copied {
            self.failures.fetch_add(1, Ordering::Relaxed);
            tracing::error!(error = error as &dyn std::error::Error, "cannot copy the audit log to its target");
        }
        self.not_copied.store(copied.is_err(), Ordering::Relaxed);
    }

    /// Writes entries for actions whose server died before it could say how they ended.
    fn complete_interrupted(&self) -> Result<(), StoreError> {
        for intent in self.store.intents()? {
            if self.owner.is_alive(&intent.owner) {
                continue;
            }
            let entry = NewAudit { result: AuditResult::Error { code: INTERRUPTED.to_owned() }, ..intent.entry };
            let pending = PendingEntry { entry, time: intent.time, count: 1, intent: Some(intent.number) };
            self.store.add_audit(&pending)?;
        }
        Ok(())
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The entry that says that others are missing.
fn lost(last: NewAudit, count: u32) -> PendingEntry {
    let entry = NewAudit {
        actor: Actor::engine(),
        action: "audit.lost".to_owned(),
        object: None,
        result: AuditResult::Error { code: "not_written".to_owned() },
        recording: None,
        ..last
    };
    PendingEntry { entry, time: Timestamp::now(), count, intent: None }
}

#[cfg(test)]
impl AuditLog {
    pub(super) fn record_at(&self, entry: NewAudit, time: Timestamp) {
        self.log.record(entry, None, time);
    }
}
