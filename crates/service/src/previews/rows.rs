//! Rows of preview tokens that stand: given out, neither revoked nor expired.

use jiff::Timestamp;
use rusqlite::params;
use sandling_engine::store::StoreError;

use crate::WorkspaceName;
use crate::store::Store;

impl Store {
    /// Enters a token, and forgets all whose time is over. False when the workspace has `most` of them already.
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

    /// Lastingly: what was revoked does not come back after a failure of the host. False when there is none.
    pub(crate) fn remove_preview(&self, workspace: &WorkspaceName, id: &str) -> Result<bool, StoreError> {
        self.lastingly(|connection| {
            let mut statement = connection.prepare_cached("DELETE FROM previews WHERE workspace = ?1 AND id = ?2")?;
            Ok(statement.execute([workspace.as_str(), id])? == 1)
        })
    }
}
