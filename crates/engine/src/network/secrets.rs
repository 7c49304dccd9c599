//! Secrets of a workspace: stored encrypted, bound to hosts, given to sandboxes by name, revoked at once and for good.

use jiff::Timestamp;
use sandling_network::policy::Entry;
use sandling_network::{Placement, Secret, SecretSet};
use zeroize::Zeroizing;

use super::error::NetworkError;
use super::networks::Networks;
use super::shared::Shared;
use crate::model::{AttachedSecret, SecretId};
use crate::store::{SecretRow, StoreError};

const MOST_SECRETS: usize = 256;
const LONGEST_NAME: usize = 64;
const LONGEST_VALUE: usize = 8 * 1024;
/// Programs would no longer start, or trust whom they should.
const RESERVED: [&str; 5] = ["PATH", "HOME", "USER", "LD_PRELOAD", "LD_LIBRARY_PATH"];
/// Stands where a placeholder will be, to see whether the rest makes a secret.
const SOME_PLACEHOLDER: &str = "sandling_secret_0000000000000000";

/// A secret as it can be shown: without its value.
#[derive(Debug, Clone)]
pub struct SecretInfo {
    pub name: String,
    pub hosts: Vec<Entry>,
    pub placements: Vec<Placement>,
    pub created_at: Timestamp,
}

fn purpose(workspace: &str, name: &str) -> String {
    format!("secret {workspace}/{name}")
}

impl Networks {
    /// Stores a secret, or replaces it. Sandboxes that have it use the new value from now on.
    pub fn set_secret(
        &self,
        workspace: &str,
        name: &str,
        value: Zeroizing<String>,
        hosts: Vec<Entry>,
        placements: Vec<Placement>,
    ) -> Result<SecretInfo, NetworkError> {
        check_name(name)?;
        if value.len() > LONGEST_VALUE {
            return Err(NetworkError::SecretLength { most: LONGEST_VALUE });
        }
        if placements.contains(&Placement::AnyHeader) {
            return Err(NetworkError::AnyHeader);
        }
        Secret::new(name, SOME_PLACEHOLDER, value.as_str().to_owned(), hosts.clone(), placements.clone())?;
        let known = self.shared.store.secrets(workspace)?;
        if known.len() >= MOST_SECRETS && !known.iter().any(|row| row.name == name) {
            return Err(NetworkError::Full { most: MOST_SECRETS });
        }
        let sealed = self.shared.seal_secret(workspace, name, value.as_bytes())?;
        let (id, name) = (SecretId::fresh(), name.to_owned());
        let row = SecretRow { id, name, hosts, placements, created_at: Timestamp::now(), sealed };
        self.shared.store.put_secret(workspace, &row)?;
        self.secrets_changed(workspace);
        Ok(row.into())
    }

    /// The secrets of a workspace, without their values.
    pub fn secrets(&self, workspace: &str) -> Result<Vec<SecretInfo>, NetworkError> {
        Ok(self.shared.store.secrets(workspace)?.into_iter().map(SecretInfo::from).collect())
    }

    /// Forgets a secret: no sandbox can use it any more when this returns, nor what is stored by its name later, unless
    /// it is given that. False when there is none.
    pub fn remove_secret(&self, workspace: &str, name: &str) -> Result<bool, NetworkError> {
        let removed = self.shared.store.remove_secret(workspace, name)?;
        self.secrets_changed(workspace);
        Ok(removed)
    }

    /// Encrypts a text for the store, to be opened for the same purpose only.
    pub fn seal(&self, purpose: &str, text: &[u8]) -> std::io::Result<Vec<u8>> {
        self.shared.vault.seal(purpose, text)
    }

    /// Decrypts what [`Self::seal`] made.
    pub fn unseal(&self, purpose: &str, sealed: &[u8]) -> std::io::Result<Zeroizing<Vec<u8>>> {
        self.shared.vault.open(purpose, sealed)
    }

    pub(super) fn secrets_changed(&self, workspace: &str) {
        for network in self.of_workspace(workspace) {
            network.renew_secrets();
        }
    }
}

impl Shared {
    /// Those of a sandbox's secrets that there still are. One that cannot be opened is left out: what is not there
    /// cannot be placed, and requests with its placeholder go nowhere that matters.
    pub(super) fn secret_set(&self, workspace: &str, attached: &[AttachedSecret]) -> SecretSet {
        if attached.is_empty() {
            return SecretSet::default();
        }
        let rows = self.store.secrets(workspace).unwrap_or_else(|error| {
            tracing::error!(error = &error as &dyn std::error::Error, "secrets cannot be read; none is used");
            Vec::new()
        });
        let given = attached.iter().filter_map(|secret| {
            let row = rows.iter().find(|row| secret.is_of(row))?;
            match self.open_secret(workspace, row, &secret.placeholder) {
                Ok(secret) => Some(secret),
                Err(error) => {
                    tracing::error!(secret = row.name, error = &error as &dyn std::error::Error, "it is not used");
                    None
                }
            }
        });
        SecretSet::new(given.collect())
    }

    /// The names of those that are gone, though another may be stored by such a name now.
    pub(super) fn revoked(&self, workspace: &str, attached: &[AttachedSecret]) -> Result<Vec<String>, StoreError> {
        if attached.is_empty() {
            return Ok(Vec::new());
        }
        let rows = self.store.secrets(workspace)?;
        let gone = attached.iter().filter(|secret| !rows.iter().any(|row| secret.is_of(row)));
        Ok(gone.map(|secret| secret.name.clone()).collect())
    }

    pub(super) fn seal_secret(&self, workspace: &str, name: &str, value: &[u8]) -> Result<Vec<u8>, NetworkError> {
        self.vault.seal(&purpose(workspace, name), value).map_err(NetworkError::Key)
    }

    pub(super) fn secret_value(&self, workspace: &str, row: &SecretRow) -> Result<String, NetworkError> {
        let value = self.vault.open(&purpose(workspace, &row.name), &row.sealed).map_err(NetworkError::Key)?;
        Ok(String::from_utf8_lossy(&value).into_owned())
    }

    fn open_secret(&self, workspace: &str, row: &SecretRow, placeholder: &str) -> Result<Secret, NetworkError> {
        let value = self.secret_value(workspace, row)?;
        Ok(Secret::new(&row.name, placeholder, value, row.hosts.clone(), row.placements.clone())?)
    }
}

fn check_name(name: &str) -> Result<(), NetworkError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let begins_well = name.bytes().next().is_some_and(|first| plain(first) && !first.is_ascii_digit());
    if !begins_well || name.len() > LONGEST_NAME || !name.bytes().all(plain) {
        return Err(NetworkError::SecretName);
    }
    if RESERVED.contains(&name) || super::authority::variables().any(|(variable, _)| variable == name) {
        return Err(NetworkError::ReservedName);
    }
    Ok(())
}

impl From<SecretRow> for SecretInfo {
    fn from(row: SecretRow) -> Self {
        Self { name: row.name, hosts: row.hosts, placements: row.placements, created_at: row.created_at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{DEFAULT_WORKSPACE, NetworkSettings};
    use crate::network::networks::tests::home;

    #[test]
    fn a_value_is_only_for_sandboxes_that_were_given_this_very_secret() {
        let (_dir, networks) = home();
        let set = |value: &str| {
            let hosts = vec!["api.example.com".parse().unwrap()];
            networks
                .set_secret(DEFAULT_WORKSPACE, "KEY", value.to_owned().into(), hosts, vec![Placement::default()])
                .unwrap();
        };
        let grant = |had: &NetworkSettings| {
            let wanted = Some(vec!["KEY".to_owned()]);
            had.given(&networks.grant(DEFAULT_WORKSPACE, had, &wanted).unwrap().secrets)
        };
        let usable = |settings: &NetworkSettings| {
            let usable = networks.shared.secret_set(DEFAULT_WORKSPACE, &settings.secrets).iter().count();
            (usable, networks.shared.effective(DEFAULT_WORKSPACE, "base", settings).unwrap().revoked.len())
        };
        set("first");
        let given = grant(&NetworkSettings::default());
        set("second");
        assert_eq!((usable(&given), grant(&given)), ((1, 0), given.clone()), "it is still the same");
        networks.remove_secret(DEFAULT_WORKSPACE, "KEY").unwrap();
        assert_eq!(usable(&given), (0, 1));
        set("third");
        assert_eq!(usable(&given), (0, 1));
        let again = grant(&given);
        assert_eq!((usable(&again), again.secrets.len()), ((1, 0), 1));
        assert_ne!(again.secrets[0].placeholder, given.secrets[0].placeholder);
    }

    #[test]
    fn a_secrets_name_can_be_a_variables() {
        for good in ["OPENAI_API_KEY", "token", "_x9"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", "9A", "A-B", "A=B", "PATH", "SSL_CERT_FILE", "Ä", &"A".repeat(65)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }
}
