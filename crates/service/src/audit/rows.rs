//! Rows of the audit log. They are added and, when there are too many or they are too old, deleted, but never changed.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, TransactionBehavior, params};
use sandling_engine::store::StoreError;
use sandling_engine::store::rows::{parsed, readable, time};

use super::log::{Actor, AuditEntry, AuditQuery, AuditResult, AuditRetention, NewAudit, Recording};
use crate::store::Store;
use crate::workspaces::WorkspaceName;

impl Store {
    /// Adds an entry together with the recording of the run, and returns its number.
    pub(crate) fn add_audit(&self, entry: &NewAudit<'_>, now: Timestamp) -> Result<i64, StoreError> {
        let mut connection = self.connection();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction
            .prepare_cached(
                "INSERT INTO audit (time_ms, workspace, actor_prefix, actor_name, action, object, result, code, \
                 request_id, remote) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            )?
            .execute(params![
                now.as_millisecond(),
                entry.workspace.as_str(),
                entry.actor.prefix,
                entry.actor.name,
                entry.action,
                entry.object,
                entry.result.as_str(),
                entry.result.code(),
                entry.request_id,
                entry.remote.map(|address| address.to_string()),
            ])?;
        let number = transaction.last_insert_rowid();
        if let Some(recording) = &entry.recording {
            insert_recording(&transaction, number, entry.workspace, recording)?;
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
            "SELECT *, EXISTS (SELECT 1 FROM audit_recordings r WHERE r.number = audit.number) AS recorded FROM audit \
             WHERE {workspace} AND number > ?2 AND time_ms >= ?3 ORDER BY number {order} LIMIT ?4"
        );
        let connection = self.connection();
        let mut statement = connection.prepare_cached(&sql)?;
        let params = params![
            query.workspace.as_ref().map(WorkspaceName::as_str),
            query.after.unwrap_or(0),
            query.since.map_or(i64::MIN, Timestamp::as_millisecond),
            query.limit,
        ];
        let mut entries = readable(&mut statement, params, read)?;
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
        let connection = self.connection();
        let mut statement =
            connection.prepare_cached("SELECT * FROM audit_recordings WHERE number = ?1 AND workspace = ?2")?;
        let recording = statement.query_row(params![number, workspace.as_str()], |row| {
            Ok(Recording {
                code: row.get("code")?,
                code_cut: row.get("code_cut")?,
                output: row.get("output")?,
                output_cut: row.get("output_cut")?,
            })
        });
        Ok(recording.optional()?)
    }

    /// The workspaces that have entries, including deleted ones.
    pub(crate) fn audited_workspaces(&self) -> Result<Vec<WorkspaceName>, StoreError> {
        let connection = self.connection();
        let mut statement = connection.prepare_cached("SELECT DISTINCT workspace FROM audit")?;
        readable(&mut statement, [], |row| parsed(row, "workspace", WorkspaceName::parse))
    }

    /// Deletes a workspace's entries beyond its limits. Each workspace has limits of its own, so that none can push out
    /// the entries of another.
    pub(crate) fn prune_audit(
        &self,
        workspace: &WorkspaceName,
        keep: &AuditRetention,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let oldest = now.as_millisecond().saturating_sub(keep.age.as_millis().try_into().unwrap_or(i64::MAX));
        let connection = self.connection();
        for (table, kept) in [("audit", keep.entries), ("audit_recordings", keep.recordings)] {
            connection.execute(
                &format!(
                    "DELETE FROM {table} WHERE workspace = ?1 AND number <= (SELECT number FROM {table} \
                     WHERE workspace = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2)"
                ),
                params![workspace.as_str(), kept],
            )?;
        }
        // Up to the first entry that is young enough, which SQLite finds without reading the rest.
        connection.execute(
            "DELETE FROM audit WHERE workspace = ?1 AND number < ifnull((SELECT number FROM audit \
             WHERE workspace = ?1 AND time_ms >= ?2 ORDER BY number LIMIT 1), ?3)",
            params![workspace.as_str(), oldest, i64::MAX],
        )?;
        Ok(())
    }
}

fn insert_recording(
    connection: &Connection,
    number: i64,
    workspace: &WorkspaceName,
    recording: &Recording,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO audit_recordings (number, workspace, code, code_cut, output, output_cut) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![
            number,
            workspace.as_str(),
            recording.code,
            recording.code_cut,
            recording.output,
            recording.output_cut
        ])
        .map(drop)
}

fn read(row: &Row<'_>) -> rusqlite::Result<AuditEntry> {
    let code: Option<String> = row.get("code")?;
    Ok(AuditEntry {
        number: row.get("number")?,
        time: time(row, "time_ms")?,
        workspace: parsed(row, "workspace", WorkspaceName::parse)?,
        actor: Actor { prefix: row.get("actor_prefix")?, name: row.get("actor_name")? },
        action: row.get("action")?,
        object: row.get("object")?,
        result: parsed(row, "result", |result| AuditResult::from_columns(result, code))?,
        request_id: row.get("request_id")?,
        remote: row.get("remote")?,
        recorded: row.get("recorded")?,
    })
}
