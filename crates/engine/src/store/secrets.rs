//! Rows of secrets, and of the certificate authorities of sandboxes. Both hold encrypted values.

use jiff::Timestamp;
use rusqlite::types::Type;
use rusqlite::{Error, Row, params};
use sandling_network::Placement;
use sandling_network::policy::Entry;
use serde::de::DeserializeOwned;

use super::rows::{Query, time};
use super::{Store, StoreError};
use crate::model::{SecretId, SecretVersion};

/// A secret of a workspace.
#[derive(Debug, Clone)]
pub struct SecretRow {
    pub id: SecretId,
    pub name: String,
    pub hosts: Vec<Entry>,
    pub placements: Vec<Placement>,
    pub created_at: Timestamp,
    pub sealed: Vec<u8>,
}

impl Store {
    /// Inserts a secret, or replaces the one of this name, which keeps its id.
    pub fn put_secret(&self, workspace: &str, secret: &SecretRow) -> Result<(), StoreError> {
        let (hosts, placements) = (serde_json::to_string(&secret.hosts)?, serde_json::to_string(&secret.placements)?);
        let created = secret.created_at.as_millisecond();
        self.connection()
            .run(
                "INSERT INTO secrets (workspace, name, created_ms, hosts, sealed, id, placements) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (workspace, name) DO UPDATE SET \
                 created_ms = excluded.created_ms, hosts = excluded.hosts, sealed = excluded.sealed, \
                 placements = excluded.placements",
                params![workspace, secret.name, created, hosts, secret.sealed, secret.id.as_str(), placements],
            )
            .map(drop)
    }

    pub fn secrets(&self, workspace: &str) -> Result<Vec<SecretRow>, StoreError> {
        self.connection().all("SELECT * FROM secrets WHERE workspace = ?1 ORDER BY name", [workspace], read)
    }

    /// All secrets without their values. Fails if one cannot be read.
    pub fn secret_versions(&self) -> Result<Vec<SecretVersion>, StoreError> {
        let connection = self.connection();
        let all = "SELECT workspace, name, id, created_ms FROM secrets ORDER BY 1, 2";
        let mut statement = connection.prepare_cached(all)?;
        let rows = statement.query_map([], |row| {
            let id = SecretId::from(row.get::<_, String>(2)?);
            Ok(SecretVersion { workspace: row.get(0)?, name: row.get(1)?, id, created_ms: row.get(3)? })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Returns false if there is none.
    pub fn remove_secret(&self, workspace: &str, name: &str) -> Result<bool, StoreError> {
        self.connection().run("DELETE FROM secrets WHERE workspace = ?1 AND name = ?2", [workspace, name])
    }

    pub fn put_authority(&self, sandbox: &str, sealed: &[u8]) -> Result<(), StoreError> {
        self.connection()
            .run("INSERT OR REPLACE INTO authorities (sandbox, sealed) VALUES (?1, ?2)", params![sandbox, sealed])
            .map(drop)
    }

    pub fn authority(&self, sandbox: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.connection().find("SELECT sealed FROM authorities WHERE sandbox = ?1", [sandbox], |row| row.get(0))
    }
}

fn read(row: &Row<'_>) -> rusqlite::Result<SecretRow> {
    let (hosts, placements) = (list(row, "hosts")?, list(row, "placements")?);
    let (id, name) = (SecretId::from(row.get::<_, String>("id")?), row.get("name")?);
    Ok(SecretRow { id, name, hosts, placements, created_at: time(row, "created_ms")?, sealed: row.get("sealed")? })
}

/// A JSON list in a column.
fn list<T: DeserializeOwned>(row: &Row<'_>, column: &str) -> rusqlite::Result<Vec<T>> {
    let text: String = row.get(column)?;
    serde_json::from_str(&text).map_err(|error| Error::FromSqlConversionFailure(0, Type::Text, error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(sealed: u8) -> SecretRow {
        let hosts = vec!["api.example.com".parse().unwrap()];
        let (id, created_at, placements) = (SecretId::fresh(), Timestamp::now(), vec![Placement::default()]);
        SecretRow { id, name: "KEY".to_owned(), hosts, placements, created_at, sealed: vec![sealed] }
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
    fn placements_are_stored_as_these_texts() {
        let texts = r#"["header Authorization: Bearer","header x-api-key","query key","basic","any header"]"#;
        let placements: Vec<Placement> = serde_json::from_str(texts).unwrap();
        assert_eq!(serde_json::to_string(&placements).unwrap(), texts);
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("s.db")).unwrap();
        store.put_secret("default", &SecretRow { placements: placements.clone(), ..row(1) }).unwrap();
        assert_eq!(only(&store).placements, placements);
        let stored: String =
            store.connection().query_row("SELECT placements FROM secrets", [], |row| row.get(0)).unwrap();
        assert_eq!(stored, texts);
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
        assert_eq!(only(&store).placements, [Placement::AnyHeader]);
        assert_eq!(crate::store::secrets_in_any_header(&path).unwrap(), ["KEY"]);
        store.put_secret("default", &row(2)).unwrap();
        assert_eq!((only(&store).id, only(&store).placements), (SecretId::default(), vec![Placement::default()]));
        assert!(crate::store::secrets_in_any_header(&path).unwrap().is_empty());
        store.remove_secret("default", "KEY").unwrap();
        store.put_secret("default", &row(3)).unwrap();
        assert_ne!(only(&store).id, SecretId::default());
    }
}
