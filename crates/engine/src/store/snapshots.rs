//! Rows of snapshots.

use std::sync::atomic::Ordering;

use rusqlite::{Connection, Row, params};

use super::rows::{Query, lossy};
use super::{Store, StoreError};
use crate::model::{SnapshotId, SnapshotInfo, Visibility, read_row};

impl Store {
    /// Inserts a snapshot whose files are written. If its files are synced to disk, the row is synced as well.
    /// `cached_bytes` is the size of its cached process.
    pub fn insert_snapshot(
        &self,
        info: &SnapshotInfo,
        visibility: Visibility,
        cached_bytes: u64,
    ) -> Result<(), StoreError> {
        let inserted = match info.synced {
            true => self.lastingly(|connection| insert(connection, info, visibility, cached_bytes)),
            false => insert(&self.connection(), info, visibility, cached_bytes),
        };
        self.snapshots_changed();
        inserted
    }

    /// A number that grows when this process inserts, lists, hides or removes a snapshot.
    pub fn snapshot_changes(&self) -> u64 {
        self.snapshot_changes.load(Ordering::SeqCst)
    }

    fn snapshots_changed(&self) {
        self.snapshot_changes.fetch_add(1, Ordering::SeqCst);
    }

    /// Records that a snapshot has lost its cached process.
    pub fn process_evicted(&self, id: &SnapshotId) -> Result<(), StoreError> {
        let Some((info, _)) = self.snapshot(id)? else { return Ok(()) };
        let update = "UPDATE snapshots SET bytes = ?2 WHERE id = ?1";
        self.connection().run(update, params![id.as_str(), stored_bytes(&info, 0)]).map(drop)
    }

    /// A snapshot of any workspace.
    pub fn snapshot(&self, id: &SnapshotId) -> Result<Option<(SnapshotInfo, Visibility)>, StoreError> {
        let row = self.connection().find("SELECT detail, listed FROM snapshots WHERE id = ?1", [id.as_str()], read)?;
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
        self.connection().all("SELECT detail, listed, id FROM snapshots ORDER BY created_ms", [], |row| {
            let whole = read(row).ok().and_then(|(detail, listed)| Some((read_row(&detail).ok()?, listed)));
            if whole.is_none() {
                tracing::warn!(snapshot = %lossy(row, 2)?, "the store's row of this snapshot is unreadable");
            }
            Ok(whole)
        })
    }

    /// The workspace of a snapshot, also if the rest of its row cannot be read.
    pub fn workspace_of_snapshot(&self, id: &SnapshotId) -> Result<Option<String>, StoreError> {
        self.connection().find("SELECT workspace FROM snapshots WHERE id = ?1", [id.as_str()], |row| lossy(row, 0))
    }

    /// How many bytes all snapshots of a workspace take, including those that are kept only because others need them.
    pub fn snapshot_bytes(&self, workspace: &str) -> Result<u64, StoreError> {
        let total = "SELECT total(bytes) FROM snapshots WHERE workspace = ?1";
        Ok(self.connection().find(total, [workspace], |row| row.get::<_, f64>(0))?.unwrap_or_default() as u64)
    }

    /// Lists a snapshot or hides it, and waits until the disk has that: another home may rely on it.
    pub fn list_snapshot(&self, id: &SnapshotId, visibility: Visibility) -> Result<(), StoreError> {
        let update = "UPDATE snapshots SET listed = ?2 WHERE id = ?1";
        let row = params![id.as_str(), visibility == Visibility::Listed];
        let listed = self.lastingly(|connection| connection.run(update, row));
        self.snapshots_changed();
        listed.map(drop)
    }

    pub fn remove_snapshot(&self, id: &SnapshotId) -> Result<(), StoreError> {
        let removed = self.connection().run("DELETE FROM snapshots WHERE id = ?1", [id.as_str()]);
        self.snapshots_changed();
        removed.map(drop)
    }
}

fn insert(
    connection: &Connection,
    info: &SnapshotInfo,
    visibility: Visibility,
    cached_bytes: u64,
) -> Result<(), StoreError> {
    let (created, listed) = (info.created_at.as_millisecond(), visibility == Visibility::Listed);
    let bytes = stored_bytes(info, cached_bytes);
    let insert =
        "INSERT INTO snapshots (id, workspace, created_ms, listed, detail, bytes) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let detail = serde_json::to_string(info)?;
    connection.run(insert, params![info.id.as_str(), info.workspace, created, listed, detail, bytes]).map(drop)
}

fn stored_bytes(info: &SnapshotInfo, cached_bytes: u64) -> i64 {
    let bytes = info.memory_bytes.saturating_add(info.disk_bytes).saturating_add(cached_bytes);
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn read(row: &Row<'_>) -> rusqlite::Result<(String, Visibility)> {
    Ok((row.get(0)?, if row.get(1)? { Visibility::Listed } else { Visibility::Hidden }))
}
