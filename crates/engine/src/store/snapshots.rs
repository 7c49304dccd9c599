//! Rows of snapshots.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::rows::lossy;
use super::{Store, StoreError};
use crate::model::{SnapshotId, SnapshotInfo, Visibility, read_row};

impl Store {
    /// Writes a snapshot whose files are there, and lastingly if they are.
    pub fn insert_snapshot(&self, info: &SnapshotInfo, visibility: Visibility) -> Result<(), StoreError> {
        if info.synced {
            return self.lastingly(|connection| insert(connection, info, visibility));
        }
        insert(&self.connection(), info, visibility)
    }

    /// A snapshot of any workspace.
    pub fn snapshot(&self, id: &SnapshotId) -> Result<Option<(SnapshotInfo, Visibility)>, StoreError> {
        let row = self
            .connection()
            .prepare_cached("SELECT detail, listed FROM snapshots WHERE id = ?1")?
            .query_row([id.as_str()], read)
            .optional()?;
        row.map(|(detail, listed)| Ok((read_row(&detail)?, listed))).transpose()
    }

    /// All snapshots that can be read, oldest first. The others are named in the log.
    pub fn snapshots(&self) -> Result<Vec<(SnapshotInfo, Visibility)>, StoreError> {
        Ok(self.read_snapshots()?.into_iter().flatten().collect())
    }

    /// All snapshots, or `None` if a row cannot be read, for callers that must not overlook what that one stands on.
    pub fn all_snapshots(&self) -> Result<Option<Vec<(SnapshotInfo, Visibility)>>, StoreError> {
        Ok(self.read_snapshots()?.into_iter().collect())
    }

    fn read_snapshots(&self) -> Result<Vec<Option<(SnapshotInfo, Visibility)>>, StoreError> {
        let connection = self.connection();
        let mut statement =
            connection.prepare_cached("SELECT detail, listed, id FROM snapshots ORDER BY created_ms")?;
        let rows = statement.query_map([], |row| {
            let whole = read(row).ok().and_then(|(detail, listed)| Some((read_row(&detail).ok()?, listed)));
            if whole.is_none() {
                tracing::warn!(snapshot = %lossy(row, 2)?, "the store's row of this snapshot is unreadable");
            }
            Ok(whole)
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// What all snapshots of a workspace take, those included that are kept only for what stands on them.
    pub fn snapshot_bytes(&self, workspace: &str) -> Result<u64, StoreError> {
        let connection = self.connection();
        let mut statement = connection.prepare_cached("SELECT total(bytes) FROM snapshots WHERE workspace = ?1")?;
        Ok(statement.query_row([workspace], |row| row.get::<_, f64>(0))? as u64)
    }

    pub fn list_snapshot(&self, id: &SnapshotId, visibility: Visibility) -> Result<(), StoreError> {
        self.connection()
            .prepare_cached("UPDATE snapshots SET listed = ?2 WHERE id = ?1")?
            .execute(params![id.as_str(), visibility == Visibility::Listed])?;
        Ok(())
    }

    pub fn remove_snapshot(&self, id: &SnapshotId) -> Result<(), StoreError> {
        self.connection().prepare_cached("DELETE FROM snapshots WHERE id = ?1")?.execute([id.as_str()])?;
        Ok(())
    }
}

fn insert(connection: &Connection, info: &SnapshotInfo, visibility: Visibility) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO snapshots (id, workspace, created_ms, listed, detail, bytes) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![
            info.id.as_str(),
            info.workspace,
            info.created_at.as_millisecond(),
            visibility == Visibility::Listed,
            serde_json::to_string(info)?,
            i64::try_from(info.memory_bytes.saturating_add(info.disk_bytes)).unwrap_or(i64::MAX),
        ])?;
    Ok(())
}

fn read(row: &Row<'_>) -> rusqlite::Result<(String, Visibility)> {
    Ok((row.get(0)?, if row.get(1)? { Visibility::Listed } else { Visibility::Hidden }))
}
