//! Rows of snapshots that are kept under a key.

use jiff::Timestamp;
use rusqlite::{Row, params};

use super::rows::{Query, time};
use super::{Store, StoreError};
use crate::model::SnapshotId;

pub(crate) struct KeptRow {
    pub(crate) key: String,
    pub(crate) snapshot: SnapshotId,
    pub(crate) created_at: Timestamp,
    pub(crate) used_at: Timestamp,
}

impl Store {
    pub(crate) fn keep_snapshot(&self, workspace: &str, key: &str, snapshot: &SnapshotId) -> Result<(), StoreError> {
        let now = Timestamp::now().as_millisecond();
        let insert = "INSERT OR REPLACE INTO kept_snapshots (workspace, key, snapshot, created_ms, used_ms) \
                      VALUES (?1, ?2, ?3, ?4, ?4)";
        self.connection().run(insert, params![workspace, key, snapshot.as_str(), now]).map(drop)
    }

    /// The snapshot of a key. Reading it counts as a use.
    pub(crate) fn kept_snapshot(&self, workspace: &str, key: &str) -> Result<Option<SnapshotId>, StoreError> {
        let connection = self.connection();
        let now = Timestamp::now().as_millisecond();
        let update = "UPDATE kept_snapshots SET used_ms = ?3 WHERE workspace = ?1 AND key = ?2";
        connection.run(update, params![workspace, key, now])?;
        let one = "SELECT * FROM kept_snapshots WHERE workspace = ?1 AND key = ?2";
        Ok(connection.find(one, [workspace, key], read)?.flatten().map(|row| row.snapshot))
    }

    /// Those of a workspace, the one that was not used for longest first.
    pub(crate) fn kept_snapshots_of(&self, workspace: &str) -> Result<Vec<KeptRow>, StoreError> {
        let all = "SELECT * FROM kept_snapshots WHERE workspace = ?1 ORDER BY used_ms, created_ms";
        Ok(self.connection().all(all, [workspace], read)?.into_iter().flatten().collect())
    }

    /// Those of all workspaces, with their workspaces.
    pub(crate) fn all_kept_snapshots(&self) -> Result<Vec<(String, KeptRow)>, StoreError> {
        let with_workspace = |row: &Row<'_>| Ok((row.get::<_, String>("workspace")?, read(row)?));
        let rows = self.connection().all("SELECT * FROM kept_snapshots", [], with_workspace)?.into_iter();
        Ok(rows.filter_map(|(workspace, row)| Some((workspace, row?))).collect())
    }

    /// The snapshots of all workspaces.
    pub(crate) fn kept_snapshots(&self) -> Result<Vec<SnapshotId>, StoreError> {
        let rows = self.connection().all("SELECT * FROM kept_snapshots", [], read)?;
        Ok(rows.into_iter().flatten().map(|row| row.snapshot).collect())
    }

    pub(crate) fn forget_kept_snapshot(&self, workspace: &str, key: &str) -> Result<bool, StoreError> {
        self.connection().run("DELETE FROM kept_snapshots WHERE workspace = ?1 AND key = ?2", [workspace, key])
    }
}

/// `None` if the row names no snapshot.
fn read(row: &Row<'_>) -> rusqlite::Result<Option<KeptRow>> {
    let snapshot: String = row.get("snapshot")?;
    let (key, created_at, used_at) = (row.get("key")?, time(row, "created_ms")?, time(row, "used_ms")?);
    Ok(SnapshotId::parse(&snapshot).map(|snapshot| KeptRow { key, snapshot, created_at, used_at }))
}
