//! The ledger of a single machine: one SQLite file that one process has open.
//!
//! When leases end is known in memory only, as in etcd's leader: after a restart every lease starts its TTL anew.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, params};
use tokio::sync::watch;
use tokio::time::Instant;

use super::definition::{
    Change, Changes, LeaseId, Ledger, LedgerError, Outcome, Page, Record, Revision, Transaction, Write,
};

const SCHEMA: &str = "
    create table if not exists record (
        key text primary key, value text not null, created integer not null, modified integer not null, lease integer
    ) without rowid;
    create index if not exists record_lease on record (lease) where lease is not null;
    create table if not exists change (
        revision integer not null, key text not null, value text, created integer,
        primary key (revision, key)
    ) without rowid;
    create table if not exists lease (id integer primary key autoincrement, ttl_ms integer not null);
    create table if not exists position (revision integer not null, compacted integer not null);
    insert into position select 0, 0 where not exists (select 1 from position);
";

/// How long `open` waits for another process that has the file open.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct SqliteLedger {
    store: Arc<Mutex<Store>>,
    newest: watch::Sender<Revision>,
}

struct Store {
    connection: Connection,
    expiries: BTreeMap<LeaseId, Instant>,
}

impl From<rusqlite::Error> for LedgerError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Unavailable(format!("the database query failed: {error}"))
    }
}

impl SqliteLedger {
    pub fn open(path: &Path) -> Result<Self, LedgerError> {
        let mut store = Store { connection: open_when_free(path)?, expiries: BTreeMap::new() };
        store.restart_leases()?;
        let newest = watch::Sender::new(store.position("revision")?);
        Ok(Self { store: Arc::new(Mutex::new(store)), newest })
    }

    /// Runs one database transaction on a thread that may block, after the leases that have expired by now.
    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Store) -> Result<T, LedgerError> + Send + 'static,
    ) -> Result<T, LedgerError> {
        let store = self.store.clone();
        let work = move || {
            let mut store = lock(&store);
            store.connection.execute_batch("begin immediate")?;
            let result = store.end_expired_leases().and_then(|()| work(&mut store));
            store.connection.execute_batch(if result.is_ok() { "commit" } else { "rollback" })?;
            Ok::<_, LedgerError>((result?, store.position("revision")?))
        };
        let joined = tokio::task::spawn_blocking(work).await;
        let (result, revision) = joined.map_err(|error| LedgerError::Unexpected(error.to_string()))??;
        self.newest.send_if_modified(|newest| {
            let newer = revision > *newest;
            *newest = revision.max(*newest);
            newer
        });
        Ok(result)
    }
}

/// Opens the file anew while another process has it. One connection that tries again would not do: in this locking mode it
/// keeps its lock for reading, so two connections would wait for each other.
fn open_when_free(path: &Path) -> rusqlite::Result<Connection> {
    let end = std::time::Instant::now() + PATIENCE;
    loop {
        match open_once(path) {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && std::time::Instant::now() < end =>
            {
                std::thread::sleep(Duration::from_millis(fastrand::u64(1..=20)));
            }
            done => return done,
        }
    }
}

fn open_once(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(Duration::ZERO)?;
    connection.pragma_update(None, "locking_mode", "exclusive")?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    // An acknowledged claim must survive a power cut.
    connection.pragma_update(None, "synchronous", "full")?;
    connection.execute_batch(SCHEMA)?;
    Ok(connection)
}

fn lock(store: &Mutex<Store>) -> MutexGuard<'_, Store> {
    store.lock().unwrap_or_else(PoisonError::into_inner)
}

fn record(row: &Row<'_>) -> rusqlite::Result<Record> {
    let (key, value): (String, String) = (row.get("key")?, row.get("value")?);
    let (created, modified) = (Revision(row.get("created")?), Revision(row.get("modified")?));
    Ok(Record { key: key.into(), value: value.into(), created, modified })
}

fn milliseconds(number: i64) -> Duration {
    Duration::from_millis(number.unsigned_abs())
}

/// The smallest text that is greater than every key with the prefix. Keys are never as large as this character.
fn end_of(prefix: &str) -> String {
    format!("{prefix}\u{10ffff}")
}

impl Store {
    fn position(&self, column: &str) -> Result<Revision, LedgerError> {
        Ok(Revision(self.connection.query_row(&format!("select {column} from position"), [], |row| row.get(0))?))
    }

    fn next_revision(&self) -> Result<Revision, LedgerError> {
        let next = "update position set revision = revision + 1 returning revision";
        Ok(Revision(self.connection.query_row(next, [], |row| row.get(0))?))
    }

    fn restart_leases(&mut self) -> Result<(), LedgerError> {
        let mut leases = self.connection.prepare("select id, ttl_ms from lease")?;
        let leases = leases.query_map([], |row| Ok((LeaseId(row.get(0)?), milliseconds(row.get(1)?))))?;
        for lease in leases {
            let (lease, ttl) = lease?;
            self.expiries.insert(lease, Instant::now() + ttl);
        }
        Ok(())
    }

    fn end_expired_leases(&mut self) -> Result<(), LedgerError> {
        let now = Instant::now();
        let expired: Vec<_> = self.expiries.iter().filter(|(_, end)| **end <= now).map(|(lease, _)| *lease).collect();
        expired.into_iter().try_for_each(|lease| self.end_lease(lease))
    }

    fn end_lease(&mut self, lease: LeaseId) -> Result<(), LedgerError> {
        let keys: Vec<String> = {
            let mut keys = self.connection.prepare_cached("select key from record where lease = ?")?;
            keys.query_map([lease.0], |row| row.get(0))?.collect::<Result<_, _>>()?
        };
        if !keys.is_empty() {
            let revision = self.next_revision()?;
            keys.iter().try_for_each(|key| self.delete(key, revision))?;
        }
        self.connection.execute("delete from lease where id = ?", [lease.0])?;
        self.expiries.remove(&lease);
        Ok(())
    }

    fn renew(&mut self, lease: LeaseId) -> Result<(), LedgerError> {
        let ttl = "select ttl_ms from lease where id = ?";
        let ttl = self.connection.query_row(ttl, [lease.0], |row| row.get(0).map(milliseconds)).optional()?;
        let ttl = ttl.ok_or(LedgerError::LeaseGone)?;
        self.expiries.insert(lease, Instant::now() + ttl);
        Ok(())
    }

    fn get(&self, key: &str) -> Result<Option<Record>, LedgerError> {
        let mut select = self.connection.prepare_cached("select * from record where key = ?")?;
        Ok(select.query_row([key], record).optional()?)
    }

    fn put(&self, key: &str, value: &str, lease: Option<LeaseId>, revision: Revision) -> Result<(), LedgerError> {
        if lease.is_some_and(|lease| !self.expiries.contains_key(&lease)) {
            return Err(LedgerError::LeaseGone);
        }
        let created = self.get(key)?.map_or(revision, |old| old.created);
        let mut put = self.connection.prepare_cached("replace into record values (?, ?, ?, ?, ?)")?;
        put.execute(params![key, value, created.0, revision.0, lease.map(|lease| lease.0)])?;
        let mut change = self.connection.prepare_cached("insert into change values (?, ?, ?, ?)")?;
        change.execute(params![revision.0, key, value, created.0])?;
        Ok(())
    }

    fn delete(&self, key: &str, revision: Revision) -> Result<(), LedgerError> {
        if self.connection.execute("delete from record where key = ?", [key])? > 0 {
            self.connection.execute("insert into change values (?, ?, null, null)", params![revision.0, key])?;
        }
        Ok(())
    }

    fn commit(&self, transaction: &Transaction) -> Result<Outcome, LedgerError> {
        let conditions = &transaction.conditions;
        let current = conditions.iter().map(|condition| self.get(&condition.key)).collect::<Result<Vec<_>, _>>()?;
        if !conditions.iter().zip(&current).all(|(condition, record)| condition.expect.holds(record.as_ref())) {
            return Ok(Outcome::Refused(current));
        }
        let revision = self.next_revision()?;
        for write in &transaction.writes {
            match write {
                Write::Put { key, value, lease } => self.put(key, value, *lease, revision)?,
                Write::Delete { key } => self.delete(key, revision)?,
            }
        }
        Ok(Outcome::Committed(revision))
    }

    fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page, LedgerError> {
        let select =
            "select * from record where key >= ?1 and key < ?2 and (?3 is null or key > ?3) order by key limit ?4";
        let mut select = self.connection.prepare_cached(select)?;
        let records = select.query_map(params![prefix, end_of(prefix), after, limit as i64], record)?;
        Ok(Page { records: records.collect::<Result<_, _>>()?, revision: self.position("revision")? })
    }

    fn changes(&self, prefix: &str, after: Revision) -> Result<Option<Changes>, LedgerError> {
        if after < self.position("compacted")? {
            return Err(LedgerError::Compacted { after: after.0 });
        }
        let select = "select key, value, created, revision as modified from change
                      where revision > ? and key >= ? and key < ? order by revision, key";
        let mut select = self.connection.prepare_cached(select)?;
        let changes = select.query_map(params![after.0, prefix, end_of(prefix)], |row| {
            let deleted = row.get_ref("value")? == rusqlite::types::ValueRef::Null;
            let key = || row.get::<_, String>("key").map(Into::into);
            if deleted { Ok(Change::Deleted { key: key()? }) } else { record(row).map(Change::Put) }
        })?;
        let changes: Vec<_> = changes.collect::<Result<_, _>>()?;
        Ok(if changes.is_empty() { None } else { Some(Changes { changes, until: self.position("revision")? }) })
    }
}

impl Ledger for SqliteLedger {
    async fn grant(&self, ttl: Duration) -> Result<LeaseId, LedgerError> {
        self.with(move |store| {
            let ttl_ms = ttl.as_millis() as i64;
            store.connection.execute("insert into lease (ttl_ms) values (?)", [ttl_ms])?;
            let lease = LeaseId(store.connection.last_insert_rowid());
            store.renew(lease)?;
            Ok(lease)
        })
        .await
    }

    async fn renew(&self, lease: LeaseId) -> Result<(), LedgerError> {
        self.with(move |store| store.renew(lease)).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), LedgerError> {
        self.with(move |store| store.end_lease(lease)).await
    }

    async fn commit(&self, transaction: Transaction) -> Result<Outcome, LedgerError> {
        self.with(move |store| store.commit(&transaction)).await
    }

    async fn get(&self, key: &str) -> Result<Option<Record>, LedgerError> {
        let key = key.to_owned();
        self.with(move |store| store.get(&key)).await
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page, LedgerError> {
        let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
        self.with(move |store| store.list(&prefix, after.as_deref(), limit)).await
    }

    async fn changes(&self, prefix: &str, after: Revision) -> Result<Changes, LedgerError> {
        let mut newest = self.newest.subscribe();
        loop {
            newest.mark_unchanged();
            let prefix = prefix.to_owned();
            let found = self.with(move |store| {
                let next_expiry = store.expiries.values().min().copied();
                Ok((store.changes(&prefix, after)?, next_expiry))
            });
            let next_expiry = match found.await? {
                (Some(changes), _) => return Ok(changes),
                (None, next_expiry) => next_expiry,
            };
            let expiry = async {
                match next_expiry {
                    Some(expires) => tokio::time::sleep_until(expires).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = newest.changed() => {}
                () = expiry => {}
            }
        }
    }

    async fn compact(&self, until: Revision) -> Result<(), LedgerError> {
        self.with(move |store| {
            store.connection.execute("delete from change where revision <= ?", [until.0])?;
            store.connection.execute("update position set compacted = max(compacted, ?)", [until.0])?;
            Ok(())
        })
        .await
    }
}
