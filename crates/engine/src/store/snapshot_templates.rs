//! Rows of templates that are snapshots.

use rusqlite::{OptionalExtension, Row, params};

use super::rows::readable;
use super::{Store, StoreError};
use crate::model::{SnapshotId, SnapshotTemplate};

const COLUMNS: &str = "workspace, name, snapshot, description";

impl Store {
    /// False when there is one of this name.
    pub fn insert_snapshot_template(&self, template: &SnapshotTemplate) -> Result<bool, StoreError> {
        let rows = self
            .connection()
            .prepare_cached(
                "INSERT INTO snapshot_templates (workspace, name, snapshot, description, created_ms) \
                 VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING",
            )?
            .execute(params![
                template.workspace,
                template.name,
                template.snapshot.as_str(),
                template.description,
                jiff::Timestamp::now().as_millisecond()
            ])?;
        Ok(rows == 1)
    }

    pub fn snapshot_template(&self, workspace: &str, name: &str) -> Result<Option<SnapshotTemplate>, StoreError> {
        let connection = self.connection();
        let sql = format!("SELECT {COLUMNS} FROM snapshot_templates WHERE workspace = ?1 AND name = ?2");
        let row = connection.prepare_cached(&sql)?.query_row([workspace, name], read).optional()?;
        Ok(row.flatten())
    }

    /// False when there is none of this name.
    pub fn change_snapshot_template(&self, template: &SnapshotTemplate) -> Result<bool, StoreError> {
        let rows = self
            .connection()
            .prepare_cached(
                "UPDATE snapshot_templates SET snapshot = ?3, description = ?4 WHERE workspace = ?1 AND name = ?2",
            )?
            .execute([
                template.workspace.as_str(),
                template.name.as_str(),
                template.snapshot.as_str(),
                template.description.as_str(),
            ])?;
        Ok(rows == 1)
    }

    /// Those of all workspaces.
    pub fn snapshot_templates(&self) -> Result<Vec<SnapshotTemplate>, StoreError> {
        let connection = self.connection();
        let mut statement =
            connection.prepare_cached(&format!("SELECT {COLUMNS} FROM snapshot_templates ORDER BY name"))?;
        Ok(readable(&mut statement, [], read)?.into_iter().flatten().collect())
    }

    /// False when there is none.
    pub fn remove_snapshot_template(&self, workspace: &str, name: &str) -> Result<bool, StoreError> {
        let rows = self
            .connection()
            .prepare_cached("DELETE FROM snapshot_templates WHERE workspace = ?1 AND name = ?2")?
            .execute([workspace, name])?;
        Ok(rows == 1)
    }
}

/// Nothing if the row names no snapshot.
fn read(row: &Row<'_>) -> rusqlite::Result<Option<SnapshotTemplate>> {
    let snapshot: String = row.get(2)?;
    let (workspace, name, description) = (row.get(0)?, row.get(1)?, row.get(3)?);
    Ok(SnapshotId::parse(&snapshot).map(|snapshot| SnapshotTemplate { workspace, name, snapshot, description }))
}
