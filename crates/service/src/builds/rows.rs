//! Rows of builds of templates.

use jiff::Timestamp;
use rusqlite::{Row, params};
use sandling_engine::store::StoreError;
use sandling_engine::store::rows::{readable, time, time_or_never};

use super::record::{BuildEnd, BuildRecord};
use crate::store::Store;

impl Store {
    /// Inserts a build that the process `owner` runs.
    pub(crate) fn insert_build(&self, build: &BuildRecord, owner: &str) -> Result<(), StoreError> {
        let started = build.started_at.as_millisecond();
        self.connection()
            .prepare_cached("INSERT INTO builds (id, workspace, name, owner, started_ms) VALUES (?1, ?2, ?3, ?4, ?5)")?
            .execute(params![build.id, build.workspace, build.name, owner, started])?;
        Ok(())
    }

    pub(crate) fn end_build(&self, id: &str, at: Timestamp, end: &BuildEnd) -> Result<(), StoreError> {
        let (bytes, why, step) = match end {
            BuildEnd::Done { bytes } => (Some(i64::try_from(*bytes).unwrap_or(i64::MAX)), None, None),
            BuildEnd::Failed { why, step } => (None, Some(why), Some(step)),
        };
        self.connection()
            .prepare_cached("UPDATE builds SET ended_ms = ?2, bytes = ?3, why = ?4, step = ?5 WHERE id = ?1")?
            .execute(params![id, at.as_millisecond(), bytes, why, step])?;
        Ok(())
    }

    pub(crate) fn remove_build(&self, id: &str) -> Result<(), StoreError> {
        self.connection().prepare_cached("DELETE FROM builds WHERE id = ?1")?.execute([id])?;
        Ok(())
    }

    /// All builds, oldest first, each with the process that ran it.
    pub(crate) fn builds(&self) -> Result<Vec<(BuildRecord, String)>, StoreError> {
        let connection = self.connection();
        let mut statement = connection.prepare_cached("SELECT * FROM builds ORDER BY started_ms, id")?;
        readable(&mut statement, [], read)
    }
}

fn read(row: &Row<'_>) -> rusqlite::Result<(BuildRecord, String)> {
    let text = |column| row.get::<_, Option<String>>(column).map(Option::unwrap_or_default);
    let end = match row.get::<_, Option<i64>>("bytes")? {
        Some(bytes) => BuildEnd::Done { bytes: bytes.unsigned_abs() },
        None => BuildEnd::Failed { why: text("why")?, step: text("step")? },
    };
    let build = BuildRecord {
        id: row.get("id")?,
        workspace: row.get("workspace")?,
        name: row.get("name")?,
        started_at: time(row, "started_ms")?,
        ended: time_or_never(row, "ended_ms")?.map(|at| (at, end)),
    };
    Ok((build, row.get("owner")?))
}
