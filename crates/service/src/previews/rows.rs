//! Rows of the preview tokens that are valid: issued, and neither revoked nor expired.

use jiff::Timestamp;
use rusqlite::params;
use sandling_engine::store::StoreError;
use sandling_engine::store::rows::Query;

use crate::store::Store;
use crate::workspaces::WorkspaceName;

impl Store {
    /// Inserts a token, and deletes all expired ones. Returns false if the workspace already has `most` tokens.
    pub(crate) fn insert_preview(
        &self,
        workspace: &WorkspaceName,
        id: &str,
        expires: Timestamp,
        most: u32,
    ) -> Result<bool, StoreError> {
        let connection = self.connection();
        connection.run("DELETE FROM previews WHERE expires_ms <= ?1", [Timestamp::now().as_millisecond()])?;
        connection.run(
            "INSERT INTO previews (id, workspace, expires_ms) SELECT ?1, ?2, ?3 \
             WHERE (SELECT count(*) FROM previews WHERE workspace = ?2) < ?4",
            params![id, workspace.as_str(), expires.as_millisecond(), most],
        )
    }

    pub(crate) fn has_preview(&self, workspace: &str, id: &str) -> Result<bool, StoreError> {
        let valid = "SELECT 1 FROM previews WHERE workspace = ?1 AND id = ?2";
        Ok(self.connection().find(valid, [workspace, id], |_| Ok(()))?.is_some())
    }

    /// Written to the disk at once, so that a revoked token stays revoked after a power failure. Returns false if there is
    /// no such token.
    pub(crate) fn remove_preview(&self, workspace: &WorkspaceName, id: &str) -> Result<bool, StoreError> {
        let delete = "DELETE FROM previews WHERE workspace = ?1 AND id = ?2";
        self.lastingly(|connection| connection.run(delete, [workspace.as_str(), id]))
    }
}
