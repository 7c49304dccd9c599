//! Rows of sandboxes.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{Store, StoreError};
use crate::sandbox::SandboxInfo;

/// Ended sandboxes whose rows are kept for those who ask what became of them.
const KEPT_ENDED: i64 = 10_000;

#[derive(Debug, Clone)]
pub struct SandboxRow {
    pub id: String,
    pub engine: String,
    pub info: SandboxInfo,
}

impl Store {
    /// Writes a sandbox that is about to be handed out.
    pub fn insert_sandbox(&self, engine: &str, info: &SandboxInfo) -> Result<(), StoreError> {
        self.connection()
            .prepare_cached(
                "INSERT INTO sandboxes (id, engine, state, created_ms, detail) VALUES (?1, ?2, 'running', ?3, ?4)",
            )?
            .execute(params![
                info.id.as_str(),
                engine,
                info.created_at.as_millisecond(),
                serde_json::to_string(info)?
            ])?;
        Ok(())
    }

    /// Writes down what changed about a sandbox that lives.
    pub fn update_sandbox(&self, info: &SandboxInfo) -> Result<(), StoreError> {
        update(&self.connection(), info)
    }

    /// The same, where an older row would be a lie after the host has failed.
    pub fn update_sandbox_lastingly(&self, info: &SandboxInfo) -> Result<(), StoreError> {
        self.lastingly(|connection| update(connection, info))
    }

    /// Puts a sandbox into another engine's care.
    pub fn give_sandbox(&self, id: &str, engine: &str) -> Result<(), StoreError> {
        self.connection()
            .prepare_cached("UPDATE sandboxes SET engine = ?2 WHERE id = ?1")?
            .execute(params![id, engine])?;
        Ok(())
    }

    pub fn end_sandbox(&self, id: &str, why: &str) -> Result<(), StoreError> {
        let now = jiff::Timestamp::now().as_millisecond();
        let connection = self.connection();
        connection
            .prepare_cached(
                "UPDATE sandboxes SET state = 'ended', ended_ms = ?2, ended_why = ?3 WHERE id = ?1 AND state <> 'ended'",
            )?
            .execute(params![id, now, why])?;
        connection.prepare_cached("DELETE FROM authorities WHERE sandbox = ?1")?.execute([id])?;
        connection.prepare_cached("DELETE FROM pins WHERE sandbox = ?1")?.execute([id])?;
        connection.prepare_cached("DELETE FROM volume_uses WHERE holder = ?1")?.execute([id])?;
        connection
            .prepare_cached(
                "DELETE FROM sandboxes WHERE state = 'ended' AND id IN (SELECT id FROM sandboxes WHERE state = 'ended' \
                 ORDER BY ended_ms DESC LIMIT -1 OFFSET ?1)",
            )?
            .execute([KEPT_ENDED])?;
        Ok(())
    }

    /// The parent of a sandbox, ended or not, as long as its row is kept.
    pub fn parent_of(&self, id: &str) -> Result<Option<String>, StoreError> {
        let connection = self.connection();
        let mut statement =
            connection.prepare_cached("SELECT json_extract(detail, '$.parent') FROM sandboxes WHERE id = ?1")?;
        Ok(statement.query_row([id], |row| row.get(0)).optional()?.flatten())
    }

    /// Every sandbox that has not ended, whichever engine it belongs to. A row that cannot be read is ended, so
    /// that it hurts nobody, and named in the log.
    pub fn living_sandboxes(&self) -> Result<Vec<SandboxRow>, StoreError> {
        let (good, bad) = {
            let connection = self.connection();
            let mut statement =
                connection.prepare_cached("SELECT id, engine, detail FROM sandboxes WHERE state <> 'ended'")?;
            let rows = statement.query_map([], read)?.collect::<Result<Vec<_>, _>>()?;
            rows.into_iter().partition::<Vec<_>, _>(Result::is_ok)
        };
        for id in bad.into_iter().filter_map(Result::err) {
            tracing::warn!(sandbox = %id, "the store's row of this sandbox is unreadable; it is ended");
            self.end_sandbox(&id, "its row in the store was unreadable")?;
        }
        Ok(good.into_iter().flatten().collect())
    }
}

fn update(connection: &Connection, info: &SandboxInfo) -> Result<(), StoreError> {
    connection
        .prepare_cached("UPDATE sandboxes SET detail = ?2 WHERE id = ?1 AND state <> 'ended'")?
        .execute(params![info.id.as_str(), serde_json::to_string(info)?])?;
    Ok(())
}

fn read(row: &Row<'_>) -> rusqlite::Result<Result<SandboxRow, String>> {
    let id: String = row.get(0)?;
    let detail: String = row.get(2)?;
    let Ok(info) = serde_json::from_str(&detail) else { return Ok(Err(id)) };
    Ok(Ok(SandboxRow { id, engine: row.get(1)?, info }))
}
