//! The engine's tables in the home's SQLite file: which sandboxes, snapshots and volumes there are and what happened.
//!
//! Calls are short and synchronous; in write-ahead mode each takes microseconds. A row that a call has written
//! survives the death of the process. [`Database::lastingly`] makes it survive a power failure, too.

mod database;
mod events;
#[cfg(test)]
mod golden;
mod networks;
pub mod rows;
mod sandboxes;
mod secrets;
mod snapshot_templates;
mod snapshots;
mod unreadable;
mod volumes;
mod workspace;

use std::path::Path;
use std::sync::MutexGuard;

use rusqlite::Connection;

pub use database::{Database, StoreError};
pub use events::Event;
pub(crate) use sandboxes::SandboxRow;
pub(crate) use secrets::SecretRow;
pub(crate) use unreadable::{LivingSandboxes, UnreadableSandbox};
pub use unreadable::{Unreadable, unreadable_rows};
pub(crate) use volumes::{Claim, Use};
pub use workspace::forget_workspace;

/// The engine's connection to the database.
pub(crate) struct Store(Database);

impl Store {
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Database::open(path).map(Self)
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.0.connection()
    }

    fn lastingly<T>(&self, write: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.0.lastingly(write)
    }
}
