//! Workspaces: every object belongs to one, and is invisible to the others.
//!
//! The name of a deleted workspace cannot be used again: events, ended sandboxes and audit entries still have it, and a
//! new workspace of the same name would see them.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use sandling_engine::DEFAULT_WORKSPACE;
use sandling_engine::store::StoreError;
use serde::{Deserialize, Serialize};

use crate::store::Store;

/// 1 to 63 lower-case letters, digits and dashes; the first is not a dash.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WorkspaceName(String);

const LONGEST_NAME: usize = 63;

impl WorkspaceName {
    pub fn parse(text: &str) -> Option<Self> {
        let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let valid = !text.is_empty() && text.len() <= LONGEST_NAME && !text.starts_with('-') && text.chars().all(good);
        valid.then(|| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn is_default(&self) -> bool {
        self.0 == DEFAULT_WORKSPACE
    }
}

impl Default for WorkspaceName {
    /// The workspace that every home has.
    fn default() -> Self {
        Self(DEFAULT_WORKSPACE.to_owned())
    }
}

impl fmt::Display for WorkspaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for WorkspaceName {
    type Error = WorkspaceError;

    fn try_from(text: String) -> Result<Self, WorkspaceError> {
        Self::parse(&text).ok_or(WorkspaceError::BadName)
    }
}

impl From<WorkspaceName> for String {
    fn from(name: WorkspaceName) -> Self {
        name.0
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workspace {
    pub name: WorkspaceName,
    pub created_at: Timestamp,
    /// Whether the code and output of runs go to the audit log.
    pub record_runs: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    #[error("a workspace's name has 1 to 63 lower-case letters, digits and dashes, and does not begin with a dash")]
    BadName,
    #[error("there is no workspace {0}")]
    NotFound(WorkspaceName),
    #[error("the name {0} is taken, or was taken by a workspace that is deleted")]
    NameTaken(WorkspaceName),
    #[error("the workspace {workspace} still owns {objects} objects; remove them first")]
    InUse { workspace: WorkspaceName, objects: u64 },
    #[error("the workspace {0} cannot be deleted")]
    Permanent(WorkspaceName),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// All workspaces of a home. [`Admission::delete_workspace`](crate::Admission::delete_workspace) deletes them.
pub struct Workspaces {
    pub(crate) store: Arc<Store>,
}

impl Workspaces {
    pub(crate) fn new(store: Arc<Store>) -> Self {
        Self { store }
    }

    /// All workspaces, by name.
    pub fn list(&self) -> Result<Vec<Workspace>, StoreError> {
        self.store.workspaces()
    }

    pub fn find(&self, name: &WorkspaceName) -> Result<Workspace, WorkspaceError> {
        self.store.workspace(name)?.ok_or_else(|| WorkspaceError::NotFound(name.clone()))
    }

    pub fn create(&self, name: &WorkspaceName) -> Result<Workspace, WorkspaceError> {
        if !self.store.insert_workspace(name, Timestamp::now())? {
            return Err(WorkspaceError::NameTaken(name.clone()));
        }
        self.find(name)
    }

    /// Sets whether the code and output of runs go to the audit log.
    pub fn set_record_runs(&self, name: &WorkspaceName, record: bool) -> Result<(), WorkspaceError> {
        let found = self.store.set_record_runs(name, record)?;
        found.then_some(()).ok_or_else(|| WorkspaceError::NotFound(name.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn invalid_names_are_refused() {
        for bad in ["", "-a", "A", "a/b", "..", "a b", "a\n", "ä", "a_b", &"a".repeat(64)] {
            assert_eq!(WorkspaceName::parse(bad), None, "{bad:?}");
        }
        assert!(serde_json::from_str::<WorkspaceName>("\"../x\"").is_err());
    }

    proptest! {
        #[test]
        fn every_valid_name_is_accepted(text in "[a-z0-9][a-z0-9-]{0,62}") {
            let name = WorkspaceName::parse(&text).map(String::from);
            prop_assert_eq!(name, Some(text));
        }
    }
}
