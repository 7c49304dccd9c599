//! Rows of events, in order.

use jiff::Timestamp;
use rusqlite::{Row, params};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::rows::{Query, lossy};
use super::{Store, StoreError};

/// Events kept in all; the oldest go first.
const KEPT: i64 = 100_000;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Event {
    pub number: i64,
    pub time: Timestamp,
    pub sandbox: String,
    pub workspace: String,
    /// `created`, `paused`, `ended`, `advice`, …
    pub kind: String,
    pub detail: Value,
}

impl Store {
    pub fn add_event(&self, sandbox: &str, workspace: &str, kind: &str, detail: Value) -> Result<Event, StoreError> {
        let time = Timestamp::now();
        let connection = self.connection();
        connection.run(
            "INSERT INTO events (time_ms, sandbox, workspace, kind, detail) VALUES (?1, ?2, ?3, ?4, ?5)",
            params![time.as_millisecond(), sandbox, workspace, kind, detail.to_string()],
        )?;
        let number = connection.last_insert_rowid();
        if number % 1000 == 0 {
            connection.execute("DELETE FROM events WHERE number <= ?1", [number - KEPT])?;
        }
        let (sandbox, workspace, kind) = (sandbox.to_owned(), workspace.to_owned(), kind.to_owned());
        Ok(Event { number, time, sandbox, workspace, kind, detail })
    }

    /// The workspace of a sandbox, as its events name it.
    pub fn workspace_of_events(&self, sandbox: &str) -> Result<Option<String>, StoreError> {
        let newest = "SELECT workspace FROM events WHERE sandbox = ?1 ORDER BY number DESC LIMIT 1";
        Ok(self.connection().all(newest, [sandbox], |row| row.get(0))?.pop())
    }

    /// The events of a workspace or of one of its sandboxes, oldest first: the first `limit` after the one with the number
    /// `after`, or else the newest.
    pub fn events(
        &self,
        workspace: &str,
        sandbox: Option<&str>,
        after: Option<i64>,
        limit: u32,
    ) -> Result<Vec<Event>, StoreError> {
        let order = if after.is_some() { "ASC" } else { "DESC" };
        let sql = format!(
            "SELECT number, time_ms, sandbox, workspace, kind, detail FROM events \
             WHERE workspace = ?1 AND (?2 IS NULL OR sandbox = ?2) AND number > ?3 ORDER BY number {order} LIMIT ?4"
        );
        let mut events =
            self.connection().all(&sql, params![workspace, sandbox, after.unwrap_or_default(), limit], read)?;
        if after.is_none() {
            events.reverse();
        }
        Ok(events)
    }
}

fn read(row: &Row<'_>) -> rusqlite::Result<Event> {
    // Followers go by numbers, so a damaged event is shown as far as it can be read.
    Ok(Event {
        number: row.get(0)?,
        time: row.get(1).ok().and_then(|at| Timestamp::from_millisecond(at).ok()).unwrap_or_default(),
        sandbox: lossy(row, 2)?,
        workspace: lossy(row, 3)?,
        kind: lossy(row, 4)?,
        detail: serde_json::from_str(&lossy(row, 5)?).unwrap_or(Value::Null),
    })
}
