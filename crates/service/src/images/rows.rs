//! Rows of credentials for registries, and of references that were resolved.

use jiff::Timestamp;
use rusqlite::{Row, params};
use sandling_engine::store::StoreError;
use sandling_engine::store::rows::{Query, time};
use sandling_oci::Digest;

use crate::store::Store;
use crate::workspaces::WorkspaceName;

/// Credentials as they are stored.
pub(crate) struct LoginRow {
    pub(crate) registry: String,
    pub(crate) username: String,
    pub(crate) created_at: Timestamp,
    pub(crate) sealed: Vec<u8>,
}

/// What a reference meant when a registry was last asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownImage {
    pub(crate) digest: String,
    pub(crate) template: String,
    pub(crate) resolved_at: Timestamp,
}

impl Store {
    /// Inserts credentials, or replaces those for the same registry.
    pub(crate) fn put_login(&self, workspace: &WorkspaceName, login: &LoginRow) -> Result<(), StoreError> {
        let insert = "INSERT OR REPLACE INTO registry_credentials (workspace, registry, username, created_ms, sealed) \
                      VALUES (?1, ?2, ?3, ?4, ?5)";
        let (created, sealed) = (login.created_at.as_millisecond(), &login.sealed);
        let values = params![workspace.as_str(), login.registry, login.username, created, sealed];
        self.connection().run(insert, values).map(drop)
    }

    pub(crate) fn logins(&self, workspace: &WorkspaceName) -> Result<Vec<LoginRow>, StoreError> {
        let all = "SELECT * FROM registry_credentials WHERE workspace = ?1 ORDER BY registry";
        self.connection().all(all, [workspace.as_str()], read_login)
    }

    pub(crate) fn login(&self, workspace: &WorkspaceName, registry: &str) -> Result<Option<LoginRow>, StoreError> {
        let one = "SELECT * FROM registry_credentials WHERE workspace = ?1 AND registry = ?2";
        self.connection().find(one, [workspace.as_str(), registry], read_login)
    }

    /// Written to the disk at once, so that removed credentials stay removed. Returns false if there are none.
    pub(crate) fn remove_login(&self, workspace: &WorkspaceName, registry: &str) -> Result<bool, StoreError> {
        let delete = "DELETE FROM registry_credentials WHERE workspace = ?1 AND registry = ?2";
        self.lastingly(|connection| connection.run(delete, [workspace.as_str(), registry]))
    }

    pub(crate) fn known_image(
        &self,
        workspace: &WorkspaceName,
        reference: &str,
    ) -> Result<Option<KnownImage>, StoreError> {
        let one = "SELECT * FROM image_references WHERE workspace = ?1 AND reference = ?2";
        self.connection().find(one, [workspace.as_str(), reference], |row| {
            let resolved_at = time(row, "resolved_ms")?;
            Ok(KnownImage { digest: row.get("digest")?, template: row.get("template")?, resolved_at })
        })
    }

    pub(crate) fn put_known_image(
        &self,
        workspace: &WorkspaceName,
        reference: &str,
        digest: &Digest,
        template: &str,
    ) -> Result<(), StoreError> {
        let insert = "INSERT OR REPLACE INTO image_references (workspace, reference, digest, template, resolved_ms) \
                      VALUES (?1, ?2, ?3, ?4, ?5)";
        let now = Timestamp::now().as_millisecond();
        let values = params![workspace.as_str(), reference, digest.as_str(), template, now];
        self.connection().run(insert, values).map(drop)
    }
}

fn read_login(row: &Row<'_>) -> rusqlite::Result<LoginRow> {
    Ok(LoginRow {
        registry: row.get("registry")?,
        username: row.get("username")?,
        created_at: time(row, "created_ms")?,
        sealed: row.get("sealed")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Fixture, workspace};

    #[test]
    fn credentials_belong_to_one_workspace_and_are_replaced_by_registry() {
        let fixture = Fixture::new();
        let (own, other) = (WorkspaceName::default(), workspace("other"));
        let row = |username: &str| LoginRow {
            registry: "ghcr.io".to_owned(),
            username: username.to_owned(),
            created_at: Timestamp::now(),
            sealed: vec![1, 2],
        };
        fixture.store.put_login(&own, &row("ann")).unwrap();
        fixture.store.put_login(&own, &row("bob")).unwrap();
        let names: Vec<_> = fixture.store.logins(&own).unwrap().into_iter().map(|login| login.username).collect();
        assert_eq!(names, ["bob"]);
        assert!(fixture.store.login(&other, "ghcr.io").unwrap().is_none());
        assert!(!fixture.store.remove_login(&other, "ghcr.io").unwrap());
        assert!(fixture.store.remove_login(&own, "ghcr.io").unwrap());
        assert!(fixture.store.login(&own, "ghcr.io").unwrap().is_none());
    }

    #[test]
    fn a_reference_is_remembered_for_its_workspace() {
        let fixture = Fixture::new();
        let (own, other) = (WorkspaceName::default(), workspace("other"));
        let digest = Digest::of(b"x");
        fixture.store.put_known_image(&own, "docker.io/library/python:3", &digest, "python-3-abc").unwrap();
        let known = fixture.store.known_image(&own, "docker.io/library/python:3").unwrap().unwrap();
        assert_eq!((known.digest.as_str(), known.template.as_str()), (digest.as_str(), "python-3-abc"));
        assert_eq!(fixture.store.known_image(&other, "docker.io/library/python:3").unwrap(), None);
    }
}
