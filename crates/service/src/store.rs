//! The service's connection to the database. The methods that read and write rows are beside what they are for.

use std::path::Path;
use std::sync::MutexGuard;

use rusqlite::Connection;
use sandling_engine::store::{Database, StoreError};

pub(crate) struct Store(Database);

impl Store {
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        Database::open(path).map(Self)
    }

    pub(crate) fn connection(&self) -> MutexGuard<'_, Connection> {
        self.0.connection()
    }

    /// Waits until the disk has this write and all earlier ones, so that they survive a power failure.
    pub(crate) fn lastingly<T>(
        &self,
        write: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.0.lastingly(write)
    }
}
