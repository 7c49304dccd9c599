//! The one SQLite file of a home, and its schema. Each crate that has tables in it opens a connection of its own.
//!
//! All tables are in one list of migrations, so the file has one version. A build refuses a file that a newer build has
//! written, and changes nothing in it.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};

use super::rows::is_damage;
use crate::host::available_space_mib;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the store {path} cannot be opened")]
    Open { path: String, source: rusqlite::Error },
    #[error("the store {path} cannot be opened: the disk is full")]
    NoRoom { path: String },
    #[error("the store was written by a newer version (schema {found}, this one knows {known})")]
    Newer { found: i64, known: i64 },
    #[error("the database query failed")]
    Query(#[from] rusqlite::Error),
    #[error("a row of the store cannot be read")]
    Row(#[from] serde_json::Error),
}

impl StoreError {
    /// Whether one row cannot be read, and not the whole database.
    pub(crate) fn is_unreadable_row(&self) -> bool {
        match self {
            Self::Row(_) => true,
            Self::Query(error) => is_damage(error),
            Self::Open { .. } | Self::NoRoom { .. } | Self::Newer { .. } => false,
        }
    }

    /// Whether the disk was full.
    pub fn is_disk_full(&self) -> bool {
        match self {
            Self::Query(error) => error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull),
            Self::NoRoom { .. } => true,
            Self::Open { .. } | Self::Newer { .. } | Self::Row(_) => false,
        }
    }
}

/// Each migration takes the schema from one version to the next.
pub(super) const MIGRATIONS: &[&str] = &[
    include_str!("schema_1.sql"),
    include_str!("schema_2.sql"),
    include_str!("schema_3.sql"),
    include_str!("schema_4.sql"),
    include_str!("schema_5.sql"),
    include_str!("schema_6.sql"),
    include_str!("schema_7.sql"),
    include_str!("schema_8.sql"),
    include_str!("schema_9.sql"),
    include_str!("schema_10.sql"),
    include_str!("schema_11.sql"),
    include_str!("schema_12.sql"),
    include_str!("schema_13.sql"),
    include_str!("schema_14.sql"),
];

/// How long a command waits for another process that has locked the file.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection to the file.
pub struct Database {
    connection: Mutex<Connection>,
}

impl Database {
    /// Opens the file, creating or migrating it as needed.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let open_error = |source| open_error(path, source);
        let mut connection = Connection::open(path).map_err(open_error)?;
        keep_private(path);
        connection.busy_timeout(PATIENCE).map_err(open_error)?;
        when_free(|| connection.pragma_update(None, "journal_mode", "wal")).map_err(open_error)?;
        connection.pragma_update(None, "synchronous", "normal").map_err(open_error)?;
        connection.pragma_update(None, "foreign_keys", true).map_err(open_error)?;
        migrate(&mut connection).map_err(|error| match error {
            StoreError::Query(source) => open_error(source),
            other => other,
        })?;
        Ok(Self { connection: Mutex::new(connection) })
    }

    pub fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the disk has this write and all earlier ones, so that they survive a power failure.
    pub fn lastingly<T>(&self, write: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let connection = self.connection();
        connection.pragma_update(None, "synchronous", "full")?;
        let written = write(&connection);
        connection.pragma_update(None, "synchronous", "normal")?;
        written
    }
}

/// Tries again while the file is locked. SQLite itself does not wait if two processes create the journal at once, or if one
/// closes the file as the last one.
fn when_free<T>(attempt: impl Fn() -> rusqlite::Result<T>) -> rusqlite::Result<T> {
    let end = Instant::now() + PATIENCE;
    loop {
        match attempt() {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(10));
            }
            done => return done,
        }
    }
}

/// SQLite reports a full disk with several errors, and some of them do not mention it.
pub(super) fn open_error(path: &Path, source: rusqlite::Error) -> StoreError {
    let place = path.parent().unwrap_or(path);
    let path = path.display().to_string();
    match available_space_mib(place) {
        Some(0) => StoreError::NoRoom { path },
        _ => StoreError::Open { path, source },
    }
}

/// The file may hold code and output of runs. If its permissions cannot be changed, those of the home still protect it.
fn keep_private(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let _ = std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600));
}

fn migrate(connection: &mut Connection) -> Result<(), StoreError> {
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let found: i64 = transaction.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let known = MIGRATIONS.len() as i64;
    if found > known {
        return Err(StoreError::Newer { found, known });
    }
    for step in &MIGRATIONS[found as usize..] {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "user_version", known)?;
    transaction.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_store_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.db");
        drop(Database::open(&path).unwrap());
        let connection = Connection::open(&path).unwrap();
        connection.pragma_update(None, "user_version", 99).unwrap();
        assert!(matches!(Database::open(&path), Err(StoreError::Newer { found: 99, .. })));
    }

    #[test]
    fn many_open_a_new_file_at_once() {
        for _ in 0..20 {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("s.db");
            std::thread::scope(|scope| {
                let opening: Vec<_> = (0..8).map(|_| scope.spawn(|| Database::open(&path).map(drop))).collect();
                opening.into_iter().for_each(|one| one.join().unwrap().unwrap());
            });
        }
    }

    #[test]
    fn rubbish_is_an_error_that_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.db");
        std::fs::write(&path, vec![7u8; 8192]).unwrap();
        let error = Database::open(&path).err().unwrap();
        assert!(error.to_string().contains("s.db"), "{error}");
    }
}
