//! Rows of the audit log. They are added and, when there are too many or they are too old, deleted, but never changed.

use jiff::Timestamp;
use rusqlite::{Connection, Row, TransactionBehavior, params};
use sandling_engine::store::StoreError;
use sandling_engine::store::rows::{Query, parsed, time};

use super::chain;
use super::entry::{Actor, AuditEntry, AuditKind, AuditQuery, AuditResult, Digest, Link, NewAudit, Recording};
use crate::store::Store;
use crate::workspaces::WorkspaceName;

const COLUMNS: &str =
    "*, EXISTS (SELECT 1 FROM audit_recordings r WHERE r.number = audit.number) AS recorded FROM audit";

/// An entry that is to be written.
#[derive(Debug, Clone)]
pub(crate) struct PendingEntry {
    pub(crate) entry: NewAudit,
    pub(crate) time: Timestamp,
    pub(crate) count: u32,
    /// The intent that it completes.
    pub(crate) intent: Option<i64>,
}

/// An action that was announced before it began.
#[derive(Debug)]
pub(crate) struct Intent {
    pub(crate) number: i64,
    pub(crate) owner: String,
    pub(crate) time: Timestamp,
    pub(crate) entry: NewAudit,
}

/// The state of one chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChainRow {
    pub(crate) workspace: WorkspaceName,
    pub(crate) kind: AuditKind,
    pub(crate) anchor: (i64, Digest),
    pub(crate) head: (i64, Digest),
    pub(crate) broken: Option<i64>,
}

impl Store {
    /// Adds an entry to its chain, together with the recording of the run, and returns its number.
    pub(crate) fn add_audit(&self, pending: &PendingEntry) -> Result<i64, StoreError> {
        let mut connection = self.connection();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let new = &pending.entry;
        let (kind, recording) = (new.kind(), new.recording.as_ref());
        // The number is part of the hash, so it is needed before the row is there.
        let last = transaction.find("SELECT seq FROM sqlite_sequence WHERE name = 'audit'", [], |row| row.get(0))?;
        let number = last.unwrap_or(0_i64) + 1;
        let head = find_chain(&transaction, &new.workspace, kind)?.map_or(Digest::ZERO, |chain| chain.head.1);
        let mut entry = AuditEntry {
            number,
            time: Timestamp::from_millisecond(pending.time.as_millisecond()).unwrap_or(pending.time),
            workspace: new.workspace.clone(),
            kind,
            actor: new.actor.clone(),
            action: new.action.clone(),
            object: new.object.clone(),
            result: new.result.clone(),
            request_id: new.request_id.clone(),
            remote: new.remote.map(|address| address.to_string()),
            count: pending.count,
            recording: recording.map(chain::recording_digest),
            recorded: recording.is_some(),
            link: None,
        };
        entry.link = Some(chain::link(head, &entry));
        insert(&transaction, &entry)?;
        if let Some(Recording { code, code_cut, output, output_cut }) = recording {
            transaction.run(
                "INSERT INTO audit_recordings (number, workspace, code, code_cut, output, output_cut) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![number, new.workspace.as_str(), code, code_cut, output, output_cut],
            )?;
        }
        if let Some(intent) = pending.intent {
            transaction.run("DELETE FROM audit_intents WHERE number = ?1", [intent])?;
        }
        transaction.commit()?;
        Ok(number)
    }

    /// With `after`, the first entries after it; without, the newest. Both are sorted oldest first.
    pub(crate) fn audit_entries(&self, query: &AuditQuery) -> Result<Vec<AuditEntry>, StoreError> {
        let order = if query.after.is_some() { "ASC" } else { "DESC" };
        // A plain comparison when there is a workspace, so that SQLite uses its index.
        let workspace = if query.workspace.is_some() { "workspace = ?1" } else { "?1 IS NULL" };
        let sql = format!(
            "SELECT {COLUMNS} WHERE {workspace} AND number > ?2 AND time_ms >= ?3 ORDER BY number {order} LIMIT ?4"
        );
        let params = params![
            query.workspace.as_ref().map(WorkspaceName::as_str),
            query.after.unwrap_or(0),
            query.since.map_or(i64::MIN, Timestamp::as_millisecond),
            query.limit,
        ];
        let mut entries = self.connection().all(&sql, params, read)?;
        if query.after.is_none() {
            entries.reverse();
        }
        Ok(entries)
    }

    pub(crate) fn audit_recording(
        &self,
        workspace: &WorkspaceName,
        number: i64,
    ) -> Result<Option<Recording>, StoreError> {
        let stored = "SELECT * FROM audit_recordings WHERE number = ?1 AND workspace = ?2";
        self.connection().find(stored, params![number, workspace.as_str()], read_recording)
    }

    /// Says that an action is about to happen. The row survives a power failure.
    pub(crate) fn add_intent(&self, owner: &str, entry: &NewAudit, now: Timestamp) -> Result<i64, StoreError> {
        let entry = serde_json::to_string(entry)?;
        self.lastingly(|connection| {
            let sql = "INSERT INTO audit_intents (owner, time_ms, entry) VALUES (?1, ?2, ?3)";
            connection.run(sql, params![owner, now.as_millisecond(), entry])?;
            Ok(connection.last_insert_rowid())
        })
    }

    /// Forgets an action that did not happen.
    pub(crate) fn drop_intent(&self, number: i64) -> Result<(), StoreError> {
        self.connection().run("DELETE FROM audit_intents WHERE number = ?1", [number]).map(drop)
    }

    pub(crate) fn intents(&self) -> Result<Vec<Intent>, StoreError> {
        self.connection().all("SELECT * FROM audit_intents ORDER BY number", [], |row| {
            Ok(Intent {
                number: row.get("number")?,
                owner: row.get("owner")?,
                time: time(row, "time_ms")?,
                entry: parsed(row, "entry", |text| serde_json::from_str(text).ok())?,
            })
        })
    }

    /// The number of the last entry that was copied to a target.
    pub(crate) fn shipped(&self, target: &str) -> Result<i64, StoreError> {
        let sql = "SELECT number FROM audit_shipping WHERE target = ?1";
        Ok(self.connection().find(sql, [target], |row| row.get(0))?.unwrap_or(0))
    }

    pub(crate) fn set_shipped(&self, target: &str, number: i64) -> Result<(), StoreError> {
        let sql = "INSERT INTO audit_shipping VALUES (?1, ?2) ON CONFLICT DO UPDATE SET number = excluded.number";
        self.connection().run(sql, params![target, number]).map(drop)
    }
}

fn insert(connection: &Connection, entry: &AuditEntry) -> Result<(), StoreError> {
    let link = entry.link.unwrap_or(Link { version: 0, previous: Digest::ZERO, hash: Digest::ZERO });
    connection.run(
        "INSERT INTO audit (number, time_ms, workspace, kind, actor_prefix, actor_name, action, object, result, code, \
         request_id, remote, count, recording, version, previous, hash) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
        params![
            entry.number,
            entry.time.as_millisecond(),
            entry.workspace.as_str(),
            entry.kind.as_str(),
            entry.actor.prefix,
            entry.actor.name,
            entry.action,
            entry.object,
            entry.result.as_str(),
            entry.result.code(),
            entry.request_id,
            entry.remote,
            entry.count,
            entry.recording.map(|digest| digest.0),
            link.version,
            link.previous.0,
            link.hash.0,
        ],
    )?;
    connection.run(
        "INSERT INTO audit_chains (workspace, kind, anchor_number, anchor_hash, head_number, head_hash) \
         VALUES (?1, ?2, 0, zeroblob(32), ?3, ?4) \
         ON CONFLICT DO UPDATE SET head_number = excluded.head_number, head_hash = excluded.head_hash",
        params![entry.workspace.as_str(), entry.kind.as_str(), entry.number, link.hash.0],
    )?;
    Ok(())
}

pub(super) fn chains(connection: &Connection) -> Result<Vec<ChainRow>, StoreError> {
    connection.all("SELECT * FROM audit_chains ORDER BY workspace, kind", [], read_chain)
}

pub(super) fn find_chain(
    connection: &Connection,
    workspace: &WorkspaceName,
    kind: AuditKind,
) -> Result<Option<ChainRow>, StoreError> {
    let sql = "SELECT * FROM audit_chains WHERE workspace = ?1 AND kind = ?2";
    connection.find(sql, params![workspace.as_str(), kind.as_str()], read_chain)
}

/// Workspaces and kinds of entries that belong to no chain.
pub(super) fn without_chain(connection: &Connection) -> Result<Vec<(String, String)>, StoreError> {
    let sql = "SELECT DISTINCT workspace, kind FROM audit EXCEPT SELECT workspace, kind FROM audit_chains";
    connection.all(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))
}

/// Calls `each` with a chain's entries after the number `after` up to `last`, oldest first. Of an entry that cannot be
/// read, it gets the number.
pub(super) fn for_each_entry(
    connection: &Connection,
    chain: &ChainRow,
    (after, last): (i64, i64),
    mut each: impl FnMut(Result<AuditEntry, i64>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let sql =
        format!("SELECT {COLUMNS} WHERE workspace = ?1 AND kind = ?2 AND number > ?3 AND number <= ?4 ORDER BY number");
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params![chain.workspace.as_str(), chain.kind.as_str(), after, last])?;
    while let Some(row) = rows.next()? {
        let number = row.get("number")?;
        each(read(row).map_err(|_| number))?;
    }
    Ok(())
}

pub(super) fn find_recording(connection: &Connection, number: i64) -> Result<Option<Recording>, StoreError> {
    connection.find("SELECT * FROM audit_recordings WHERE number = ?1", [number], read_recording)
}

fn read_recording(row: &Row<'_>) -> rusqlite::Result<Recording> {
    Ok(Recording {
        code: row.get("code")?,
        code_cut: row.get("code_cut")?,
        output: row.get("output")?,
        output_cut: row.get("output_cut")?,
    })
}

fn read_chain(row: &Row<'_>) -> rusqlite::Result<ChainRow> {
    Ok(ChainRow {
        workspace: parsed(row, "workspace", WorkspaceName::parse)?,
        kind: parsed(row, "kind", AuditKind::parse)?,
        anchor: (row.get("anchor_number")?, Digest(row.get("anchor_hash")?)),
        head: (row.get("head_number")?, Digest(row.get("head_hash")?)),
        broken: row.get("broken_number")?,
    })
}

fn read(row: &Row<'_>) -> rusqlite::Result<AuditEntry> {
    let code: Option<String> = row.get("code")?;
    let version: Option<u32> = row.get("version")?;
    let link = match version {
        Some(version) => Some(Link { version, previous: Digest(row.get("previous")?), hash: Digest(row.get("hash")?) }),
        None => None,
    };
    Ok(AuditEntry {
        number: row.get("number")?,
        time: time(row, "time_ms")?,
        workspace: parsed(row, "workspace", WorkspaceName::parse)?,
        kind: parsed(row, "kind", AuditKind::parse)?,
        actor: Actor { prefix: row.get("actor_prefix")?, name: row.get("actor_name")? },
        action: row.get("action")?,
        object: row.get("object")?,
        result: parsed(row, "result", |result| AuditResult::from_columns(result, code))?,
        request_id: row.get("request_id")?,
        remote: row.get("remote")?,
        count: row.get("count")?,
        recording: row.get::<_, Option<[u8; 32]>>("recording")?.map(Digest),
        recorded: row.get("recorded")?,
        link,
    })
}
