//! The service's connection to the database. The methods that read and write rows are beside what they are for.

use std::ops::Deref;
use std::path::Path;

use sandling_engine::store::{Database, StoreError};

pub(crate) struct Store(Database);

impl Store {
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        Database::open(path).map(Self)
    }
}

impl Deref for Store {
    type Target = Database;

    fn deref(&self) -> &Database {
        &self.0
    }
}
