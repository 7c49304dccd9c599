//! Credentials for registries: stored encrypted, and used for one workspace only.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use sandling_engine::Engine;
use sandling_engine::store::StoreError;
use sandling_oci::Reference;
use sandling_oci::registry::{Client, Credentials, CredentialsProvider, DockerConfig, RegistryError, RegistryOptions};

use super::images_of_home::Images;
use super::rows::LoginRow;
use crate::store::Store;
use crate::workspaces::WorkspaceName;

/// A registry that does not answer for so long is asked later.
const LONGEST_CHECK: Duration = Duration::from_secs(10);
const MOST_LOGINS: usize = 64;
const LONGEST_USERNAME: usize = 256;
const LONGEST_PASSWORD: usize = 16 * 1024;

/// Credentials as they can be shown: without the password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryLogin {
    pub registry: String,
    pub username: String,
    pub created_at: Timestamp,
}

#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    #[error("`{0}` is not a registry: give `host` or `host:port`, for example ghcr.io or localhost:5000")]
    Registry(String),
    #[error("a username has 1 to {LONGEST_USERNAME} characters, and no colon or control character")]
    Username,
    #[error("a password has 1 to {LONGEST_PASSWORD} characters, and no line break")]
    Password,
    #[error("{0} refuses this username and password; check both, nothing was stored")]
    Refused(String),
    #[error("this workspace has credentials for {MOST_LOGINS} registries; remove some first")]
    TooMany,
    #[error("the key that encrypts credentials cannot be used")]
    Key(#[source] std::io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn purpose(workspace: &WorkspaceName, registry: &str) -> String {
    format!("registry {workspace}/{registry}")
}

/// `host` or `host:port` as references have it; Docker Hub is `docker.io` by any of its names.
fn registry_name(text: &str) -> Result<String, CredentialError> {
    let text = text.trim_end_matches('/');
    let parsed = format!("{text}/x").parse::<Reference>().ok();
    let name = parsed.filter(|_| !text.contains('/')).map(|reference| reference.registry().to_owned());
    // A text that is no registry became the first part of a name on Docker Hub.
    let is_hub = ["docker.io", "index.docker.io", "registry-1.docker.io"].contains(&text);
    name.filter(|name| name != "docker.io" || is_hub).ok_or_else(|| CredentialError::Registry(text.to_owned()))
}

impl Images {
    /// Stores credentials, unless the registry refuses them. A registry that cannot be asked now is asked by the next pull.
    pub async fn log_in_checked(
        &self,
        workspace: &WorkspaceName,
        registry: &str,
        username: &str,
        password: &str,
    ) -> Result<RegistryLogin, CredentialError> {
        let name = registry_name(registry)?;
        let (username_given, password_given) = (username.to_owned(), password.to_owned());
        let given = move |_: &str| {
            let (username, password) = (username_given.clone(), password_given.clone());
            Ok(Some(Credentials::Basic { username, password }))
        };
        let options = RegistryOptions { credentials: Arc::new(given), ..self.options(workspace) };
        if let Ok(client) = Client::new(options) {
            let checked = tokio::time::timeout(LONGEST_CHECK, client.check_credentials(&name)).await;
            if let Ok(Err(RegistryError::CredentialsRefused { .. })) = checked {
                return Err(CredentialError::Refused(name));
            }
        }
        self.log_in(workspace, registry, username, password)
    }

    /// Stores credentials for a registry, or replaces them.
    pub fn log_in(
        &self,
        workspace: &WorkspaceName,
        registry: &str,
        username: &str,
        password: &str,
    ) -> Result<RegistryLogin, CredentialError> {
        let registry = registry_name(registry)?;
        let is_plain = |text: &str| !text.is_empty() && !text.chars().any(char::is_control);
        if !is_plain(username) || username.contains(':') || username.len() > LONGEST_USERNAME {
            return Err(CredentialError::Username);
        }
        if !is_plain(password) || password.len() > LONGEST_PASSWORD {
            return Err(CredentialError::Password);
        }
        let known = self.store.logins(workspace)?;
        if known.len() >= MOST_LOGINS && !known.iter().any(|login| login.registry == registry) {
            return Err(CredentialError::TooMany);
        }
        let sealed = self.engine.networks().seal(&purpose(workspace, &registry), password.as_bytes());
        let now = Timestamp::now();
        // As the store keeps it.
        let created_at = Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now);
        let sealed = sealed.map_err(CredentialError::Key)?;
        let row = LoginRow { registry: registry.clone(), username: username.to_owned(), created_at, sealed };
        self.store.put_login(workspace, &row)?;
        self.forget_client(workspace);
        Ok(RegistryLogin { registry, username: username.to_owned(), created_at })
    }

    /// Removes the credentials for a registry. Returns false if there are none.
    pub fn log_out(&self, workspace: &WorkspaceName, registry: &str) -> Result<bool, CredentialError> {
        let removed = self.store.remove_login(workspace, &registry_name(registry)?)?;
        self.forget_client(workspace);
        Ok(removed)
    }

    /// The registries that the workspace has credentials for, without the passwords.
    pub fn logins(&self, workspace: &WorkspaceName) -> Result<Vec<RegistryLogin>, CredentialError> {
        let rows = self.store.logins(workspace)?.into_iter();
        let shown = rows.map(|row| RegistryLogin {
            registry: row.registry,
            username: row.username,
            created_at: row.created_at,
        });
        Ok(shown.collect())
    }

    /// The workspace's own credentials first. The default workspace is the operator's, so it also has those of the
    /// operator's Docker configuration.
    pub(super) fn credentials_of(&self, workspace: &WorkspaceName) -> CredentialsProvider {
        let (engine, store, workspace) = (self.engine.clone(), self.store.clone(), workspace.clone());
        let docker_config = self.settings.docker_config.clone().filter(|_| workspace.is_default());
        Arc::new(move |registry: &str| {
            if let Some(found) = stored(&engine, &store, &workspace, registry)? {
                return Ok(Some(found));
            }
            match docker_config.as_ref().filter(|path| path.exists()) {
                Some(path) => DockerConfig::load(path).map_err(|error| error.to_string())?.credentials(registry),
                None => Ok(None),
            }
        })
    }
}

fn stored(
    engine: &Engine,
    store: &Store,
    workspace: &WorkspaceName,
    registry: &str,
) -> Result<Option<Credentials>, String> {
    let row = store.login(workspace, registry).map_err(|_| "the stored credentials cannot be read".to_owned())?;
    let Some(row) = row else { return Ok(None) };
    let opened = engine.networks().unseal(&purpose(workspace, registry), &row.sealed);
    let password = opened.map_err(|_| "the stored credentials cannot be decrypted".to_owned())?;
    let password = String::from_utf8_lossy(&password).into_owned();
    Ok(Some(Credentials::Basic { username: row.username, password }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registries_are_named_as_in_references() {
        for (text, name) in [
            ("ghcr.io", "ghcr.io"),
            ("GHCR.io/", "ghcr.io"),
            ("localhost:5000", "localhost:5000"),
            ("docker.io", "docker.io"),
            ("index.docker.io", "docker.io"),
        ] {
            assert_eq!(registry_name(text).unwrap(), name);
        }
        for bad in ["", "python", "ghcr.io/me", "https://ghcr.io", "a b.c", "x:y"] {
            assert!(registry_name(bad).is_err(), "{bad}");
        }
    }
}
