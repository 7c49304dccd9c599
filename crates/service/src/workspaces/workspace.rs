//! Workspaces: every object belongs to one, and is invisible to the others.
//!
//! A deleted workspace's name is not given out again: events, ended sandboxes and audit entries still bear it, and a
//! newcomer of the same name would see them.

use std::fmt;

use jiff::Timestamp;
use sandling_engine::DEFAULT_WORKSPACE;
use sandling_engine::store::StoreError;
use serde::{Deserialize, Serialize};

use crate::access::Access;

/// Lower-case letters, digits and dashes, at most 63, the first not a dash.
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

    fn is_default(&self) -> bool {
        self.0 == DEFAULT_WORKSPACE
    }
}

impl Default for WorkspaceName {
    /// The workspace that is there from the start.
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

impl Access {
    /// All workspaces, by name.
    pub fn workspaces(&self) -> Result<Vec<Workspace>, StoreError> {
        self.store.workspaces()
    }

    pub fn workspace(&self, name: &WorkspaceName) -> Result<Workspace, WorkspaceError> {
        self.store.workspace(name)?.ok_or_else(|| WorkspaceError::NotFound(name.clone()))
    }

    pub fn create_workspace(&self, name: &WorkspaceName) -> Result<Workspace, WorkspaceError> {
        if !self.store.insert_workspace(name, Timestamp::now())? {
            return Err(WorkspaceError::NameTaken(name.clone()));
        }
        self.workspace(name)
    }

    /// Deletes a workspace that owns nothing, and revokes its tokens.
    ///
    /// `owned` counts its objects. It is called while no sandbox can be admitted, so none slips in between; it must
    /// not call [`Access::admit`] itself.
    pub fn delete_workspace(&self, name: &WorkspaceName, owned: impl FnOnce() -> u64) -> Result<(), WorkspaceError> {
        if name.is_default() {
            return Err(WorkspaceError::Permanent(name.clone()));
        }
        let mut gate = self.admission.lock();
        let objects = owned() + gate.under_way(name);
        if objects > 0 {
            return Err(WorkspaceError::InUse { workspace: name.clone(), objects });
        }
        if !self.store.delete_workspace(name, Timestamp::now())? {
            return Err(WorkspaceError::NotFound(name.clone()));
        }
        gate.forget(name);
        Ok(())
    }

    /// Says whether the code and output of runs go to the audit log.
    pub fn set_record_runs(&self, name: &WorkspaceName, record: bool) -> Result<(), WorkspaceError> {
        let found = self.store.set_record_runs(name, record)?;
        found.then_some(()).ok_or_else(|| WorkspaceError::NotFound(name.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::tests::{Fixture, workspace};
    use crate::{AdmitError, AuthError, NewToken, Resources, Scope};
    use proptest::prelude::*;

    #[test]
    fn default_is_there_from_the_start_and_stays() {
        let fixture = Fixture::new();
        let names: Vec<_> = fixture.access.workspaces().unwrap().into_iter().map(|w| w.name).collect();
        assert_eq!(names, [WorkspaceName::default()]);
        let refused = fixture.access.delete_workspace(&WorkspaceName::default(), || 0);
        assert!(matches!(refused, Err(WorkspaceError::Permanent(_))));
    }

    #[test]
    fn a_workspace_with_objects_is_not_deleted() {
        let fixture = Fixture::new();
        let name = workspace("team-a");
        fixture.access.create_workspace(&name).unwrap();
        let refused = fixture.access.delete_workspace(&name, || 2);
        assert!(matches!(refused, Err(WorkspaceError::InUse { objects: 2, .. })));
        assert!(fixture.access.workspace(&name).is_ok());
    }

    #[test]
    fn a_workspace_in_which_something_is_being_made_is_not_deleted() {
        let fixture = Fixture::new();
        let name = workspace("team-a");
        fixture.access.create_workspace(&name).unwrap();
        let wish = Resources { sandboxes: 1, ..Resources::default() };
        let reservation = fixture.access.admit(&name, &wish, Resources::default).unwrap();
        assert!(matches!(fixture.access.delete_workspace(&name, || 0), Err(WorkspaceError::InUse { .. })));
        drop(reservation);
        fixture.access.delete_workspace(&name, || 0).unwrap();
        let late = fixture.access.admit(&name, &wish, Resources::default);
        assert!(matches!(late, Err(AdmitError::NoWorkspace(_))));
    }

    #[test]
    fn a_deleted_workspace_takes_its_tokens_along_and_keeps_its_name() {
        let fixture = Fixture::new();
        let name = workspace("team-a");
        fixture.access.create_workspace(&name).unwrap();
        let token = fixture.access.create_token(&NewToken::new(&name, Scope::Run)).unwrap();
        fixture.access.delete_workspace(&name, || 0).unwrap();
        assert!(matches!(fixture.access.authenticate(token.secret.expose()), Err(AuthError::Revoked)));
        assert!(matches!(fixture.access.workspace(&name), Err(WorkspaceError::NotFound(_))));
        assert!(matches!(fixture.access.create_workspace(&name), Err(WorkspaceError::NameTaken(_))));
        assert!(matches!(fixture.access.delete_workspace(&name, || 0), Err(WorkspaceError::NotFound(_))));
        assert!(matches!(fixture.access.set_record_runs(&name, true), Err(WorkspaceError::NotFound(_))));
    }

    #[test]
    fn names_that_could_lead_elsewhere_are_no_names() {
        for bad in ["", "-a", "A", "a/b", "..", "a b", "a\n", "ä", "a_b", &"a".repeat(64)] {
            assert_eq!(WorkspaceName::parse(bad), None, "{bad:?}");
        }
        assert!(serde_json::from_str::<WorkspaceName>("\"../x\"").is_err());
    }

    proptest! {
        #[test]
        fn every_name_by_the_rule_is_one(text in "[a-z0-9][a-z0-9-]{0,62}") {
            let name = WorkspaceName::parse(&text).map(String::from);
            prop_assert_eq!(name, Some(text));
        }
    }
}
