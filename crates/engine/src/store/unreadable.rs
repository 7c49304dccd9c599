//! Rows that cannot be read, because they are damaged or a newer version wrote them. They are kept with all they may own.

use std::path::Path;

use jiff::Timestamp;
use rusqlite::{Connection, OpenFlags, Row};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::database::open_error;
use super::rows::lossy;
use super::{SandboxRow, StoreError};
use crate::model::{NetworkDefault, SandboxId, SandboxInfo, SnapshotInfo, VolumeInfo, read_row};

/// A row that cannot be read, for the log and for `sandling doctor`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// What it is the row of.
    pub what: &'static str,
    pub id: String,
    pub why: String,
}

/// A living sandbox whose row cannot be read, and what could still be found out about it.
#[derive(Debug, Clone)]
pub struct UnreadableSandbox {
    /// `None` if not even the id can be read.
    pub id: Option<SandboxId>,
    pub engine: String,
    pub created_at: Timestamp,
    pub detail: Value,
    pub why: String,
}

/// All sandboxes that have not ended, whichever engine they belong to.
#[derive(Debug, Default)]
pub struct LivingSandboxes {
    pub readable: Vec<SandboxRow>,
    pub unreadable: Vec<UnreadableSandbox>,
}

impl LivingSandboxes {
    /// Whether a file or claim of this sandbox may belong to a living one.
    pub fn may_own(&self, sandbox: &str) -> bool {
        self.readable.iter().any(|row| row.id == sandbox)
            || self.unreadable.iter().any(|row| row.id.as_ref().is_none_or(|id| id.as_str() == sandbox))
    }

    /// All rows, or `None` if one cannot be read, for callers that must not overlook what that sandbox needs.
    pub fn complete(self) -> Option<Vec<SandboxRow>> {
        self.unreadable.is_empty().then_some(self.readable)
    }
}

/// Reads `id, engine, detail, created_ms`.
pub(super) fn read_sandbox(row: &Row<'_>) -> rusqlite::Result<Result<SandboxRow, UnreadableSandbox>> {
    let whole = || -> Result<SandboxRow, Box<dyn std::error::Error>> {
        let detail: String = row.get(2)?;
        Ok(SandboxRow { id: row.get(0)?, engine: row.get(1)?, info: read_row(&detail)? })
    };
    whole().map(Ok).or_else(|error| {
        Ok(Err(UnreadableSandbox {
            id: SandboxId::parse(&lossy(row, 0)?),
            engine: lossy(row, 1)?,
            created_at: row.get(3).ok().and_then(|at| Timestamp::from_millisecond(at).ok()).unwrap_or_default(),
            detail: serde_json::from_str(&lossy(row, 2)?).unwrap_or_default(),
            why: error.to_string(),
        }))
    })
}

/// Looks for rows that cannot be read, and changes nothing: another version's server may be using the store.
pub fn unreadable_rows(store: &Path) -> Result<Vec<Unreadable>, StoreError> {
    if !store.exists() {
        return Ok(Vec::new());
    }
    let connection = open_read_only(store)?;
    let sandbox: Check = why_unreadable::<SandboxInfo>;
    let tables = [
        ("sandbox", "SELECT id, detail FROM sandboxes WHERE state <> 'ended'", sandbox),
        ("snapshot", "SELECT id, detail FROM snapshots", why_unreadable::<SnapshotInfo>),
        ("volume", "SELECT id, detail FROM volumes", why_unreadable::<VolumeInfo>),
        ("network default", "SELECT template, detail FROM network_defaults", why_unreadable::<NetworkDefault>),
    ];
    let mut found = Vec::new();
    for (what, sql, why) in tables {
        // A table that an older version does not have yet.
        let Ok(mut statement) = connection.prepare(sql) else { continue };
        let rows = statement.query_map([], |row| Ok((lossy(row, 0)?, lossy(row, 1)?)))?;
        for (id, detail) in rows.collect::<Result<Vec<_>, _>>()? {
            found.extend(why(&detail).map(|why| Unreadable { what, id, why }));
        }
    }
    Ok(found)
}

/// The names of secrets that may be placed in any header, because a version without placements stored them. Changes
/// nothing.
pub fn secrets_in_any_header(store: &Path) -> Result<Vec<String>, StoreError> {
    if !store.exists() {
        return Ok(Vec::new());
    }
    let connection = open_read_only(store)?;
    let sql = "SELECT name FROM secrets WHERE placements LIKE '%\"any header\"%' ORDER BY name";
    // A store that an older version has not migrated yet lacks the column.
    let Ok(mut statement) = connection.prepare(sql) else { return Ok(Vec::new()) };
    let names = statement.query_map([], |row| row.get(0))?;
    Ok(names.collect::<Result<_, _>>()?)
}

fn open_read_only(store: &Path) -> Result<Connection, StoreError> {
    Connection::open_with_flags(store, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(|source| open_error(store, source))
}

/// Says why a row's JSON cannot be read, if it cannot.
type Check = fn(&str) -> Option<String>;

fn why_unreadable<T: DeserializeOwned>(detail: &str) -> Option<String> {
    serde_json::from_str::<T>(detail).err().map(|error| error.to_string())
}
