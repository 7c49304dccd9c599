//! Rows of templates that are snapshots.

use rusqlite::{Row, params};

use super::rows::Query;
use super::{Store, StoreError};
use crate::model::{SnapshotId, SnapshotTemplate};

impl Store {
    /// Returns false if the name is taken.
    pub fn insert_snapshot_template(&self, template: &SnapshotTemplate) -> Result<bool, StoreError> {
        self.connection().run(
            "INSERT INTO snapshot_templates (workspace, name, snapshot, description, created_ms) \
                 VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING",
            params![
                template.workspace,
                template.name,
                template.snapshot.as_str(),
                template.description,
                jiff::Timestamp::now().as_millisecond()
            ],
        )
    }

    pub fn snapshot_template(&self, workspace: &str, name: &str) -> Result<Option<SnapshotTemplate>, StoreError> {
        let named = "SELECT * FROM snapshot_templates WHERE workspace = ?1 AND name = ?2";
        Ok(self.connection().find(named, [workspace, name], read)?.flatten())
    }

    /// Returns false if there is no template of this name.
    pub fn change_snapshot_template(&self, template: &SnapshotTemplate) -> Result<bool, StoreError> {
        self.connection().run(
            "UPDATE snapshot_templates SET snapshot = ?3, description = ?4 WHERE workspace = ?1 AND name = ?2",
            [
                template.workspace.as_str(),
                template.name.as_str(),
                template.snapshot.as_str(),
                template.description.as_str(),
            ],
        )
    }

    /// The templates of all workspaces.
    pub fn snapshot_templates(&self) -> Result<Vec<SnapshotTemplate>, StoreError> {
        let rows = self.connection().all("SELECT * FROM snapshot_templates ORDER BY name", [], read)?;
        Ok(rows.into_iter().flatten().collect())
    }

    /// Returns false if there is none.
    pub fn remove_snapshot_template(&self, workspace: &str, name: &str) -> Result<bool, StoreError> {
        self.connection().run("DELETE FROM snapshot_templates WHERE workspace = ?1 AND name = ?2", [workspace, name])
    }
}

/// `None` if the row names no snapshot.
fn read(row: &Row<'_>) -> rusqlite::Result<Option<SnapshotTemplate>> {
    let snapshot: String = row.get("snapshot")?;
    let (workspace, name, description) = (row.get("workspace")?, row.get("name")?, row.get("description")?);
    Ok(SnapshotId::parse(&snapshot).map(|snapshot| SnapshotTemplate { workspace, name, snapshot, description }))
}
