//! Rows of workspaces.

use jiff::Timestamp;
use rusqlite::{Row, TransactionBehavior, params};
use sandling_engine::store::rows::{Query, parsed, time, time_or_never};
use sandling_engine::store::{StoreError, forget_workspace};

use super::{Workspace, WorkspaceName};
use crate::store::Store;

impl Store {
    pub(crate) fn workspaces(&self) -> Result<Vec<Workspace>, StoreError> {
        self.connection().all("SELECT * FROM workspaces WHERE deleted_ms IS NULL ORDER BY name", [], read)
    }

    /// The names of all workspaces, also of those that are deleted, and when.
    pub(crate) fn all_workspaces(&self) -> Result<Vec<(WorkspaceName, Option<Timestamp>)>, StoreError> {
        let read = |row: &Row<'_>| Ok((parsed(row, "name", WorkspaceName::parse)?, time_or_never(row, "deleted_ms")?));
        self.connection().all("SELECT * FROM workspaces ORDER BY name", [], read)
    }

    pub(crate) fn workspace(&self, name: &WorkspaceName) -> Result<Option<Workspace>, StoreError> {
        self.connection().find("SELECT * FROM workspaces WHERE name = ?1 AND deleted_ms IS NULL", [name.as_str()], read)
    }

    /// Returns false if there is, or ever was, a workspace of this name.
    pub(crate) fn insert_workspace(&self, name: &WorkspaceName, now: Timestamp) -> Result<bool, StoreError> {
        self.connection().run(
            "INSERT INTO workspaces (name, created_ms) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
            params![name.as_str(), now.as_millisecond()],
        )
    }

    /// Takes the name of a workspace that was deleted elsewhere. Changes nothing if there is, or ever was, one here.
    pub(crate) fn insert_deleted_workspace(&self, name: &WorkspaceName, deleted: Timestamp) -> Result<(), StoreError> {
        self.connection()
            .run(
                "INSERT INTO workspaces (name, created_ms, deleted_ms) VALUES (?1, ?2, ?2) ON CONFLICT DO NOTHING",
                params![name.as_str(), deleted.as_millisecond()],
            )
            .map(drop)
    }

    /// Marks a workspace as deleted, revokes its tokens and deletes its quota, secrets, previews, builds and stored
    /// answers, all or nothing. Returns false if there is no such workspace.
    pub(crate) fn delete_workspace(&self, name: &WorkspaceName, now: Timestamp) -> Result<bool, StoreError> {
        let (name, now) = (name.as_str(), now.as_millisecond());
        let mut connection = self.connection();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let delete = "UPDATE workspaces SET deleted_ms = ?2 WHERE name = ?1 AND deleted_ms IS NULL";
        let found = transaction.run(delete, params![name, now])?;
        let revoke = "UPDATE tokens SET revoked_ms = ?2 WHERE workspace = ?1 AND revoked_ms IS NULL";
        transaction.run(revoke, params![name, now])?;
        forget_workspace(&transaction, name)?;
        for table in ["quotas", "idempotency", "previews", "builds"] {
            transaction.run(&format!("DELETE FROM {table} WHERE workspace = ?1"), [name])?;
        }
        transaction.commit()?;
        Ok(found)
    }

    /// Returns false if there is no such workspace.
    pub(crate) fn set_record_runs(&self, name: &WorkspaceName, record: bool) -> Result<bool, StoreError> {
        self.connection().run(
            "UPDATE workspaces SET record_runs = ?2 WHERE name = ?1 AND deleted_ms IS NULL",
            params![name.as_str(), record],
        )
    }
}

fn read(row: &Row<'_>) -> rusqlite::Result<Workspace> {
    Ok(Workspace {
        name: parsed(row, "name", WorkspaceName::parse)?,
        created_at: time(row, "created_ms")?,
        record_runs: row.get("record_runs")?,
    })
}

#[cfg(test)]
mod tests {
    use crate::fixture::{Fixture, workspace};

    #[test]
    fn a_row_that_is_not_text_hides_no_other_row() {
        let fixture = Fixture::new();
        for name in ["first", "second"] {
            fixture.workspaces.create(&workspace(name)).unwrap();
        }
        let sql = "UPDATE workspaces SET name = CAST(x'7bff7d' AS TEXT) WHERE name = 'second'";
        assert_eq!(fixture.store.connection().execute(sql, []).unwrap(), 1);
        let names: Vec<_> = fixture.workspaces.list().unwrap().into_iter().map(|one| one.name.to_string()).collect();
        assert_eq!(names, ["default", "first"]);
    }
}
