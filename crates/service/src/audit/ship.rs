//! Copies entries to a file or to the standard output as they are written, one JSON object per line.
//!
//! The database knows how far each target got. So nothing is left out if a target fails or the server ends: it
//! continues there later. After a crash the last lines may repeat.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sandling_engine::store::StoreError;

use super::entry::AuditQuery;
use crate::store::Store;

/// How many entries are copied at once.
const BATCH: u32 = 500;

/// Where entries are copied to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditTarget {
    Stdout,
    File(PathBuf),
}

#[derive(Debug, thiserror::Error)]
pub enum ShipError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot write to {target}")]
    Write { target: String, source: io::Error },
}

#[derive(Debug)]
pub(super) struct Shipper {
    target: AuditTarget,
    file: Option<File>,
}

impl Shipper {
    /// Opens the target, so that a mistake in its name shows at the start.
    pub(super) fn open(target: AuditTarget) -> Result<Self, ShipError> {
        let mut shipper = Self { target, file: None };
        shipper.reopen().map_err(|source| shipper.error(source))?;
        Ok(shipper)
    }

    fn name(&self) -> String {
        match &self.target {
            AuditTarget::Stdout => "-".to_owned(),
            AuditTarget::File(path) => path.display().to_string(),
        }
    }

    fn error(&self, source: io::Error) -> ShipError {
        ShipError::Write { target: self.name(), source }
    }

    /// Copies all entries that were not copied before.
    pub(super) fn ship(&mut self, store: &Store) -> Result<(), ShipError> {
        let name = self.name();
        let mut after = store.shipped(&name)?;
        loop {
            let query = AuditQuery { workspace: None, since: None, after: Some(after), limit: BATCH };
            let entries = store.audit_entries(&query)?;
            let Some(last) = entries.last() else { return Ok(()) };
            after = last.number;
            let mut lines = Vec::new();
            for entry in &entries {
                serde_json::to_writer(&mut lines, entry).map_err(StoreError::from)?;
                lines.push(b'\n');
            }
            self.write(&lines).map_err(|source| self.error(source))?;
            store.set_shipped(&name, after)?;
        }
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        self.reopen()?;
        match &mut self.file {
            Some(file) => file.write_all(lines),
            None => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(lines)?;
                stdout.flush()
            }
        }
    }

    /// Opens the file again if it was moved away, as programs do that rotate logs.
    fn reopen(&mut self) -> io::Result<()> {
        let AuditTarget::File(path) = &self.target else { return Ok(()) };
        if !self.file.as_ref().is_some_and(|file| is_same_file(file, path)) {
            self.file = None;
            self.file = Some(OpenOptions::new().create(true).append(true).mode(0o600).open(path)?);
        }
        Ok(())
    }
}

fn is_same_file(file: &File, path: &Path) -> bool {
    let identity = |metadata: &std::fs::Metadata| (metadata.dev(), metadata.ino());
    matches!((file.metadata(), path.metadata()), (Ok(one), Ok(other)) if identity(&one) == identity(&other))
}
