//! A ledger in memory, for the simulator and for tests. It uses tokio's clock, so that a paused clock drives its leases.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::definition::{
    Change, Changes, LeaseId, Ledger, LedgerError, Outcome, Page, Record, Revision, Transaction, Write,
};

#[derive(Default)]
pub struct ModelLedger {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    revision: Revision,
    compacted: Revision,
    records: BTreeMap<Arc<str>, (Record, Option<LeaseId>)>,
    leases: BTreeMap<LeaseId, Lease>,
    expiries: BTreeSet<(Instant, LeaseId)>,
    granted: i64,
    /// Changes and their waiters by the part of the key before the first slash, because nodes wait for few of them.
    history: BTreeMap<String, History>,
}

struct Lease {
    ttl: Duration,
    expires: Instant,
    keys: Vec<Arc<str>>,
}

#[derive(Default)]
struct History {
    changes: Vec<(Revision, Change)>,
    /// Wakes waiters in their order, so that a simulation can be repeated. A `watch` channel wakes them at random.
    changed: Arc<Notify>,
}

fn family(key: &str) -> &str {
    key.split('/').next().unwrap_or(key)
}

impl ModelLedger {
    /// The state after the leases that have expired by now.
    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        while let Some(&(expires, lease)) = state.expiries.first() {
            if expires > now {
                break;
            }
            state.end_lease(lease);
        }
        state
    }
}

impl State {
    fn end_lease(&mut self, id: LeaseId) {
        let Some(lease) = self.leases.remove(&id) else { return };
        self.expiries.remove(&(lease.expires, id));
        let held = |key: &Arc<str>| self.records.get(key).is_some_and(|(_, lease)| *lease == Some(id));
        let keys: Vec<_> = lease.keys.into_iter().filter(held).collect();
        if !keys.is_empty() {
            self.revision.0 += 1;
        }
        for key in keys {
            self.delete(&key);
        }
    }

    fn record(&self, key: &str) -> Option<&Record> {
        self.records.get(key).map(|(record, _)| record)
    }

    fn put(&mut self, key: &str, value: &str, lease: Option<LeaseId>) {
        let created = self.record(key).map_or(self.revision, |old| old.created);
        let record = Record { key: key.into(), value: value.into(), created, modified: self.revision };
        if let Some(lease) = lease.and_then(|lease| self.leases.get_mut(&lease)) {
            lease.keys.push(record.key.clone());
        }
        self.records.insert(record.key.clone(), (record.clone(), lease));
        self.remember(key, Change::Put(record));
    }

    fn delete(&mut self, key: &str) {
        if let Some((record, _)) = self.records.remove(key) {
            self.remember(key, Change::Deleted { key: record.key });
        }
    }

    fn remember(&mut self, key: &str, change: Change) {
        let history = self.history.entry(family(key).to_owned()).or_default();
        history.changes.push((self.revision, change));
        history.changed.notify_waiters();
    }

    fn renew(&mut self, id: LeaseId) -> Result<(), LedgerError> {
        let lease = self.leases.get_mut(&id).ok_or(LedgerError::LeaseGone)?;
        self.expiries.remove(&(lease.expires, id));
        lease.expires = Instant::now() + lease.ttl;
        self.expiries.insert((lease.expires, id));
        Ok(())
    }

    fn commit(&mut self, transaction: &Transaction) -> Result<Outcome, LedgerError> {
        let conditions = &transaction.conditions;
        if !conditions.iter().all(|condition| condition.expect.holds(self.record(&condition.key))) {
            let current = conditions.iter().map(|condition| self.record(&condition.key).cloned());
            return Ok(Outcome::Refused(current.collect()));
        }
        let gone =
            |write: &Write| matches!(write, Write::Put { lease: Some(lease), .. } if !self.leases.contains_key(lease));
        if transaction.writes.iter().any(gone) {
            return Err(LedgerError::LeaseGone);
        }
        self.revision.0 += 1;
        for write in &transaction.writes {
            match write {
                Write::Put { key, value, lease } => self.put(key, value, *lease),
                Write::Delete { key } => self.delete(key),
            }
        }
        Ok(Outcome::Committed(self.revision))
    }

    fn changes(&self, prefix: &str, after: Revision) -> Result<Option<Changes>, LedgerError> {
        if after < self.compacted {
            return Err(LedgerError::Compacted { after: after.0 });
        }
        let Some(history) = self.history.get(family(prefix)) else { return Ok(None) };
        let first = history.changes.partition_point(|(revision, _)| *revision <= after);
        let matching = history.changes[first..].iter().filter(|(_, change)| match change {
            Change::Put(record) => record.key.starts_with(prefix),
            Change::Deleted { key } => key.starts_with(prefix),
        });
        let changes: Vec<_> = matching.map(|(_, change)| change.clone()).collect();
        Ok((!changes.is_empty()).then_some(Changes { changes, until: self.revision }))
    }
}

impl Ledger for ModelLedger {
    async fn grant(&self, ttl: Duration) -> Result<LeaseId, LedgerError> {
        let mut state = self.state();
        state.granted += 1;
        let id = LeaseId(state.granted);
        state.leases.insert(id, Lease { ttl, expires: Instant::now(), keys: Vec::new() });
        state.renew(id)?;
        Ok(id)
    }

    async fn renew(&self, lease: LeaseId) -> Result<(), LedgerError> {
        self.state().renew(lease)
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), LedgerError> {
        self.state().end_lease(lease);
        Ok(())
    }

    async fn commit(&self, transaction: Transaction) -> Result<Outcome, LedgerError> {
        self.state().commit(&transaction)
    }

    async fn get(&self, key: &str) -> Result<Option<Record>, LedgerError> {
        Ok(self.state().record(key).cloned())
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page, LedgerError> {
        let state = self.state();
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let records = state.records.range::<str, _>((from, Bound::Unbounded));
        let records = records.take_while(|(key, _)| key.starts_with(prefix)).take(limit);
        let records = records.map(|(_, (record, _))| record.clone()).collect();
        Ok(Page { records, revision: state.revision })
    }

    async fn changes(&self, prefix: &str, after: Revision) -> Result<Changes, LedgerError> {
        let changed = self.state().history.entry(family(prefix).to_owned()).or_default().changed.clone();
        loop {
            let changed = changed.notified();
            let next_expiry = {
                let state = self.state();
                if let Some(changes) = state.changes(prefix, after)? {
                    return Ok(changes);
                }
                state.expiries.first().map(|(expires, _)| *expires)
            };
            let expiry = async {
                match next_expiry {
                    Some(expires) => tokio::time::sleep_until(expires).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = changed => {}
                () = expiry => {}
            }
        }
    }

    async fn compact(&self, until: Revision) -> Result<(), LedgerError> {
        let mut state = self.state();
        state.compacted = state.compacted.max(until);
        for history in state.history.values_mut() {
            history.changes.retain(|(revision, _)| *revision > until);
        }
        Ok(())
    }
}
