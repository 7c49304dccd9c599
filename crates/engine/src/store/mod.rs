//! The engine's tables in the home's SQLite file: which sandboxes, snapshots and volumes there are and what happened.
//!
//! Calls are short and synchronous; in write-ahead mode each takes microseconds. A row that a call has written
//! survives the death of the process. [`Database::lastingly`] makes it survive a power failure, too.

mod database;
mod events;
#[cfg(test)]
mod golden;
mod kept_snapshots;
mod networks;
pub mod rows;
mod sandboxes;
mod secrets;
mod snapshot_templates;
mod snapshots;
mod unreadable;
mod volumes;
mod workspace;

use std::ops::Deref;
use std::path::Path;
use std::sync::atomic::AtomicU64;

pub use database::{Database, StoreError};
pub use events::Event;
pub(crate) use sandboxes::SandboxRow;
pub(crate) use secrets::SecretRow;
pub(crate) use unreadable::{LivingSandboxes, UnreadableSandbox};
pub use unreadable::{Unreadable, secrets_in_any_header, unreadable_rows};
pub(crate) use volumes::{Claim, Use};
pub use workspace::forget_workspace;

/// The engine's connection to the database.
pub(crate) struct Store {
    database: Database,
    /// How often this process has changed the rows of snapshots.
    snapshot_changes: AtomicU64,
}

impl Store {
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Ok(Self { database: Database::open(path)?, snapshot_changes: AtomicU64::new(0) })
    }
}

impl Deref for Store {
    type Target = Database;

    fn deref(&self) -> &Database {
        &self.database
    }
}
