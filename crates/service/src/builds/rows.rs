//! Rows of builds of templates.

use rusqlite::{Row, params};
use sandling_engine::store::StoreError;
use sandling_engine::store::rows::{Query, time, time_or_never};

use super::record::{BuildRecord, Stage};
use crate::store::Store;

impl Store {
    /// Inserts a build that the process `owner` runs.
    pub(crate) fn insert_build(&self, build: &BuildRecord, owner: &str) -> Result<(), StoreError> {
        let started = build.started_at.as_millisecond();
        self.connection()
            .run(
                "INSERT INTO builds (id, workspace, name, owner, started_ms) VALUES (?1, ?2, ?3, ?4, ?5)",
                params![build.id, build.workspace, build.name, owner, started],
            )
            .map(drop)
    }

    /// Stores how a build ended. Does nothing for a stage that is no end.
    pub(crate) fn end_build(&self, id: &str, end: &Stage) -> Result<(), StoreError> {
        let (at, bytes, why, step) = match end {
            Stage::Done { at, bytes } => (at, Some(i64::try_from(*bytes).unwrap_or(i64::MAX)), None, None),
            Stage::Failed { at, why, step } => (at, None, Some(why), Some(step)),
            Stage::Registered | Stage::Queued | Stage::Running => return Ok(()),
        };
        let update = "UPDATE builds SET ended_ms = ?2, bytes = ?3, why = ?4, step = ?5 WHERE id = ?1";
        self.connection().run(update, params![id, at.as_millisecond(), bytes, why, step]).map(drop)
    }

    pub(crate) fn remove_build(&self, id: &str) -> Result<(), StoreError> {
        self.connection().run("DELETE FROM builds WHERE id = ?1", [id]).map(drop)
    }

    /// All builds, oldest first, each with the process that ran it.
    pub(crate) fn builds(&self) -> Result<Vec<(BuildRecord, String)>, StoreError> {
        self.connection().all("SELECT * FROM builds ORDER BY started_ms, id", [], read)
    }
}

fn read(row: &Row<'_>) -> rusqlite::Result<(BuildRecord, String)> {
    let text = |column| row.get::<_, Option<String>>(column).map(Option::unwrap_or_default);
    let ended = match (time_or_never(row, "ended_ms")?, row.get::<_, Option<i64>>("bytes")?) {
        (None, _) => None,
        (Some(at), Some(bytes)) => Some(Stage::Done { at, bytes: bytes.unsigned_abs() }),
        (Some(at), None) => Some(Stage::Failed { at, why: text("why")?, step: text("step")? }),
    };
    let build = BuildRecord {
        id: row.get("id")?,
        workspace: row.get("workspace")?,
        name: row.get("name")?,
        started_at: time(row, "started_ms")?,
        ended,
    };
    Ok((build, row.get("owner")?))
}
