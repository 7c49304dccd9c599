//! Deleting a workspace, which is part of admission so that no sandbox can be admitted meanwhile.

use jiff::Timestamp;

use super::admit::Admission;
use crate::workspaces::{WorkspaceError, WorkspaceName};

impl Admission {
    /// Deletes a workspace that owns nothing, and revokes its tokens.
    ///
    /// `owned` counts its objects. It is called while admission is locked, so it must not call [`Admission::admit`].
    pub fn delete_workspace(&self, name: &WorkspaceName, owned: impl FnOnce() -> u64) -> Result<(), WorkspaceError> {
        if name.is_default() {
            return Err(WorkspaceError::Permanent(name.clone()));
        }
        let mut pending = self.lock();
        let objects = owned() + pending.reservations(name);
        if objects > 0 {
            return Err(WorkspaceError::InUse { workspace: name.clone(), objects });
        }
        if !self.store.delete_workspace(name, Timestamp::now())? {
            return Err(WorkspaceError::NotFound(name.clone()));
        }
        pending.forget(name);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::{AdmitError, Resources};
    use crate::fixture::{Fixture, workspace};
    use crate::tokens::{AuthError, NewToken, Scope};

    #[test]
    fn the_default_workspace_exists_and_cannot_be_deleted() {
        let fixture = Fixture::new();
        let names: Vec<_> = fixture.workspaces.list().unwrap().into_iter().map(|w| w.name).collect();
        assert_eq!(names, [WorkspaceName::default()]);
        let refused = fixture.admission.delete_workspace(&WorkspaceName::default(), || 0);
        assert!(matches!(refused, Err(WorkspaceError::Permanent(_))));
    }

    #[test]
    fn a_workspace_with_objects_is_not_deleted() {
        let fixture = Fixture::new();
        let name = workspace("team-a");
        fixture.workspaces.create(&name).unwrap();
        let refused = fixture.admission.delete_workspace(&name, || 2);
        assert!(matches!(refused, Err(WorkspaceError::InUse { objects: 2, .. })));
        assert!(fixture.workspaces.find(&name).is_ok());
    }

    #[test]
    fn a_workspace_with_a_create_in_progress_is_not_deleted() {
        let fixture = Fixture::new();
        let name = workspace("team-a");
        fixture.workspaces.create(&name).unwrap();
        let requested = Resources { sandboxes: 1, ..Resources::default() };
        let reservation = fixture.admission.admit(&name, &requested, Resources::default).unwrap();
        assert!(matches!(fixture.admission.delete_workspace(&name, || 0), Err(WorkspaceError::InUse { .. })));
        drop(reservation);
        fixture.admission.delete_workspace(&name, || 0).unwrap();
        let late = fixture.admission.admit(&name, &requested, Resources::default);
        assert!(matches!(late, Err(AdmitError::NoWorkspace(_))));
    }

    #[test]
    fn deleting_a_workspace_revokes_its_tokens_and_its_name_stays_taken() {
        let fixture = Fixture::new();
        let name = workspace("team-a");
        fixture.workspaces.create(&name).unwrap();
        let token = fixture.tokens.create(&NewToken::new(&name, Scope::Run)).unwrap();
        fixture.admission.delete_workspace(&name, || 0).unwrap();
        assert!(matches!(fixture.tokens.authenticate(token.secret.expose()), Err(AuthError::Revoked)));
        assert!(matches!(fixture.workspaces.find(&name), Err(WorkspaceError::NotFound(_))));
        assert!(matches!(fixture.workspaces.create(&name), Err(WorkspaceError::NameTaken(_))));
        assert!(matches!(fixture.admission.delete_workspace(&name, || 0), Err(WorkspaceError::NotFound(_))));
        assert!(matches!(fixture.workspaces.set_record_runs(&name, true), Err(WorkspaceError::NotFound(_))));
    }
}
