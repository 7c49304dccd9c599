//! Rows of secrets, and of the authorities of sandboxes. Both hold what is encrypted already.

use jiff::Timestamp;
use rusqlite::types::Type;
use rusqlite::{Error, OptionalExtension, Row, params};
use sandling_network::policy::Entry;

use super::rows::{readable, time};
use super::{Store, StoreError};
use crate::model::SecretId;

/// A secret of a workspace.
#[derive(Debug, Clone)]
pub struct SecretRow {
    pub id: SecretId,
    pub name: String,
    pub hosts: Vec<Entry>,
    pub created_at: Timestamp,
    pub sealed: Vec<u8>,
}

impl Store {
    /// One that is there by that name is replaced, and keeps its id.
    pub fn put_secret(&self, workspace: &str, secret: &SecretRow) -> Result<(), StoreError> {
        let (created, hosts) = (secret.created_at.as_millisecond(), serde_json::to_string(&secret.hosts)?);
        self.connection()
            .prepare_cached(
                "INSERT INTO secrets (workspace, name, created_ms, hosts, sealed, id) VALUES (?1, ?2, ?3, ?4, ?5, ?6) \
                 ON CONFLICT (workspace, name) \
                 DO UPDATE SET created_ms = excluded.created_ms, hosts = excluded.hosts, sealed = excluded.sealed",
            )?
            .execute(params![workspace, secret.name, created, hosts, secret.sealed, secret.id.as_str()])?;
        Ok(())
    }

    pub fn secrets(&self, workspace: &str) -> Result<Vec<SecretRow>, StoreError> {
        let connection = self.connection();
        let mut statement = connection.prepare_cached("SELECT * FROM secrets WHERE workspace = ?1 ORDER BY name")?;
        readable(&mut statement, [workspace], read)
    }

    /// False when there is none.
    pub fn remove_secret(&self, workspace: &str, name: &str) -> Result<bool, StoreError> {
        let rows = self
            .connection()
            .prepare_cached("DELETE FROM secrets WHERE workspace = ?1 AND name = ?2")?
            .execute([workspace, name])?;
        Ok(rows == 1)
    }

    pub fn put_authority(&self, sandbox: &str, sealed: &[u8]) -> Result<(), StoreError> {
        self.connection()
            .prepare_cached("INSERT OR REPLACE INTO authorities (sandbox, sealed) VALUES (?1, ?2)")?
            .execute(params![sandbox, sealed])?;
        Ok(())
    }

    pub fn authority(&self, sandbox: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let connection = self.connection();
        let mut statement = connection.prepare_cached("SELECT sealed FROM authorities WHERE sandbox = ?1")?;
        Ok(statement.query_row([sandbox], |row| row.get(0)).optional()?)
    }
}

fn read(row: &Row<'_>) -> rusqlite::Result<SecretRow> {
    let hosts: String = row.get("hosts")?;
    let hosts =
        serde_json::from_str(&hosts).map_err(|error| Error::FromSqlConversionFailure(0, Type::Text, error.into()))?;
    let (id, name) = (SecretId::from(row.get::<_, String>("id")?), row.get("name")?);
    Ok(SecretRow { id, name, hosts, created_at: time(row, "created_ms")?, sealed: row.get("sealed")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(sealed: u8) -> SecretRow {
        let hosts = vec!["api.example.com".parse().unwrap()];
        let (id, created_at) = (SecretId::fresh(), Timestamp::now());
        SecretRow { id, name: "KEY".to_owned(), hosts, created_at, sealed: vec![sealed] }
    }

    fn only(store: &Store) -> SecretRow {
        let mut rows = store.secrets("default").unwrap();
        assert_eq!(rows.len(), 1);
        rows.remove(0)
    }

    #[test]
    fn a_secret_that_is_replaced_is_the_same_and_one_stored_after_a_removal_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("s.db")).unwrap();
        store.put_secret("default", &row(1)).unwrap();
        let first = only(&store).id;
        store.put_secret("default", &row(2)).unwrap();
        assert_eq!((only(&store).id, only(&store).sealed), (first.clone(), vec![2]));
        assert!(store.remove_secret("default", "KEY").unwrap());
        store.put_secret("default", &row(3)).unwrap();
        assert_ne!(only(&store).id, first);
    }

    #[test]
    fn a_secret_of_before_ids_is_that_of_no_id_until_it_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.db");
        let old = rusqlite::Connection::open(&path).unwrap();
        for step in &crate::store::database::MIGRATIONS[..6] {
            old.execute_batch(step).unwrap();
        }
        old.pragma_update(None, "user_version", 6).unwrap();
        let sql = "INSERT INTO secrets VALUES ('default', 'KEY', 1, '[\"api.example.com\"]', x'01')";
        old.execute(sql, []).unwrap();
        drop(old);
        let store = Store::open(&path).unwrap();
        assert_eq!((only(&store).id, only(&store).sealed), (SecretId::default(), vec![1]));
        store.put_secret("default", &row(2)).unwrap();
        assert_eq!(only(&store).id, SecretId::default());
        store.remove_secret("default", "KEY").unwrap();
        store.put_secret("default", &row(3)).unwrap();
        assert_ne!(only(&store).id, SecretId::default());
    }
}
