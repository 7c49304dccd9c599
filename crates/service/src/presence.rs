//! Whether the process that began something still runs.
//!
//! Every process of a home holds a lock on a file of its own, which the kernel releases when the process dies.

use std::io;
use std::path::PathBuf;

use sandling_engine::owner::{self, Owner};

pub(crate) struct Presence {
    owner: Owner,
    engines: PathBuf,
}

impl Presence {
    /// Announces this process in the directory of its home that has one file per process.
    pub(crate) fn announce(engines: PathBuf) -> io::Result<Self> {
        Ok(Self { owner: Owner::new(&engines)?, engines })
    }

    /// The id under which this process writes rows.
    pub(crate) fn id(&self) -> &str {
        self.owner.id()
    }

    /// Whether the process with this id runs.
    pub(crate) fn is_alive(&self, id: &str) -> bool {
        id == self.id() || owner::is_alive(&self.engines, id)
    }
}
