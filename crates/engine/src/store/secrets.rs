//! Rows of secrets, and of the authorities of sandboxes. Both hold what is encrypted already.

use jiff::Timestamp;
use rusqlite::types::Type;
use rusqlite::{Error, OptionalExtension, Row, params};
use sandling_network::policy::Entry;

use super::rows::{readable, time};
use super::{Store, StoreError};

/// A secret of a workspace.
#[derive(Debug, Clone)]
pub struct SecretRow {
    pub name: String,
    pub hosts: Vec<Entry>,
    pub created_at: Timestamp,
    pub sealed: Vec<u8>,
}

impl Store {
    pub fn put_secret(&self, workspace: &str, secret: &SecretRow) -> Result<(), StoreError> {
        let created = secret.created_at.as_millisecond();
        self.connection()
            .prepare_cached(
                "INSERT OR REPLACE INTO secrets (workspace, name, created_ms, hosts, sealed) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![workspace, secret.name, created, serde_json::to_string(&secret.hosts)?, secret.sealed])?;
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
    Ok(SecretRow { name: row.get("name")?, hosts, created_at: time(row, "created_ms")?, sealed: row.get("sealed")? })
}
