//! Preview tokens: which ones stand. What each of them allows is signed, and not known here.

use jiff::Timestamp;
use sandling_engine::store::StoreError;

use crate::access::Access;
use crate::workspaces::WorkspaceName;

/// Those of a workspace that may stand at once.
const MOST: u32 = 10_000;

#[derive(Debug, thiserror::Error)]
pub enum PreviewError {
    #[error("max preview tokens reached: the limit is {MOST}; revoke some, or let them expire")]
    TooMany,
    #[error("there is no such preview token")]
    Unknown,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Access {
    /// Writes down that a token is given out. From then on it stands, until it expires or is revoked.
    pub fn issue_preview(&self, workspace: &WorkspaceName, id: &str, expires: Timestamp) -> Result<(), PreviewError> {
        let issued = self.store.insert_preview(workspace, id, expires, MOST)?;
        issued.then_some(()).ok_or(PreviewError::TooMany)
    }

    /// Whether a token was given out by this workspace, and not revoked.
    pub fn preview_stands(&self, workspace: &str, id: &str) -> Result<bool, StoreError> {
        self.store.has_preview(workspace, id)
    }

    /// From the moment this returns, the token is refused, by every process of this home.
    pub fn revoke_preview(&self, workspace: &WorkspaceName, id: &str) -> Result<(), PreviewError> {
        let revoked = self.store.remove_preview(workspace, id)?;
        revoked.then_some(()).ok_or(PreviewError::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::AccessSettings;
    use crate::access::tests::{Fixture, workspace};

    #[test]
    fn a_token_stands_in_its_workspace_until_that_revokes_it() {
        let fixture = Fixture::new();
        let (default, other) = (WorkspaceName::default(), workspace("other"));
        fixture.access.create_workspace(&other).unwrap();
        let later = Timestamp::now() + Duration::from_secs(60);
        fixture.access.issue_preview(&default, "aa", later).unwrap();
        assert!(matches!(fixture.access.revoke_preview(&other, "aa"), Err(PreviewError::Unknown)));
        assert!(!fixture.access.preview_stands("other", "aa").unwrap());
        let second = Access::open(&fixture.home, AccessSettings::default()).unwrap();
        assert!(second.preview_stands("default", "aa").unwrap());
        second.revoke_preview(&default, "aa").unwrap();
        assert!(!fixture.access.preview_stands("default", "aa").unwrap());
        assert!(matches!(fixture.access.revoke_preview(&default, "aa"), Err(PreviewError::Unknown)));
    }

    #[test]
    fn what_has_expired_is_forgotten_and_makes_room() {
        let fixture = Fixture::new();
        let default = WorkspaceName::default();
        let (past, later) = (Timestamp::now(), Timestamp::now() + Duration::from_secs(60));
        assert!(fixture.access.store.insert_preview(&default, "aa", past, 1).unwrap());
        assert!(fixture.access.store.insert_preview(&default, "bb", later, 1).unwrap());
        assert!(!fixture.access.store.insert_preview(&default, "cc", later, 1).unwrap());
        let stands = |id| fixture.access.preview_stands("default", id).unwrap();
        assert!(!stands("aa") && stands("bb") && !stands("cc"));
    }

    #[test]
    fn the_tokens_of_a_deleted_workspace_do_not_stand() {
        let fixture = Fixture::new();
        let team = workspace("team");
        fixture.access.create_workspace(&team).unwrap();
        fixture.access.issue_preview(&team, "aa", Timestamp::now() + Duration::from_secs(60)).unwrap();
        fixture.access.delete_workspace(&team, || 0).unwrap();
        assert!(!fixture.access.preview_stands("team", "aa").unwrap());
    }
}
