//! Rows of the preview tokens that are valid: issued, and neither revoked nor expired.

use jiff::Timestamp;
use rusqlite::params;
use sandling_engine::store::StoreError;

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
        connection
            .prepare_cached("DELETE FROM previews WHERE expires_ms <= ?1")?
            .execute([Timestamp::now().as_millisecond()])?;
        let rows = connection
            .prepare_cached(
                "INSERT INTO previews (id, workspace, expires_ms) SELECT ?1, ?2, ?3 \
                 WHERE (SELECT count(*) FROM previews WHERE workspace = ?2) < ?4",
            )?
            .execute(params![id, workspace.as_str(), expires.as_millisecond(), most])?;
        Ok(rows == 1)
    }

    pub(crate) fn has_preview(&self, workspace: &str, id: &str) -> Result<bool, StoreError> {
        let connection = self.connection();
        let mut statement = connection.prepare_cached("SELECT 1 FROM previews WHERE workspace = ?1 AND id = ?2")?;
        Ok(statement.exists([workspace, id])?)
    }

    /// Written to the disk at once, so that a revoked token stays revoked after a power failure. Returns false if there is
    /// no such token.
    pub(crate) fn remove_preview(&self, workspace: &WorkspaceName, id: &str) -> Result<bool, StoreError> {
        self.lastingly(|connection| {
            let mut statement = connection.prepare_cached("DELETE FROM previews WHERE workspace = ?1 AND id = ?2")?;
            Ok(statement.execute([workspace.as_str(), id])? == 1)
        })
    }
}
