//! Defaults and secrets that the homes of several nodes have alike.

use super::carry::CarriedSecret;
use super::error::NetworkError;
use super::networks::Networks;
use crate::model::{NetworkDefault, SecretVersion, StoredDefault};
use crate::store::{SecretRow, StoreError};

impl Networks {
    /// The defaults of all workspaces. The error also stands for one that cannot be read: it must not seem to be gone.
    pub fn all_defaults(&self) -> Result<Vec<StoredDefault>, StoreError> {
        self.shared.store.all_network_defaults()
    }

    /// Stores a default as another node has it, at once for all that follow it or are bound by it.
    pub fn adopt_default(
        &self,
        workspace: &str,
        template: Option<&str>,
        default: Option<NetworkDefault>,
    ) -> Result<(), StoreError> {
        let Some(default) = default else { return self.remove_default(workspace, template) };
        self.put_default(workspace, template, default)
    }

    /// The secrets of all workspaces, without their values.
    pub fn secret_versions(&self) -> Result<Vec<SecretVersion>, StoreError> {
        self.shared.store.secret_versions()
    }

    /// A secret with its value.
    pub fn export_secret(&self, workspace: &str, name: &str) -> Result<Option<CarriedSecret>, NetworkError> {
        let rows = self.shared.store.secrets(workspace)?;
        let row = rows.iter().find(|row| row.name == name);
        row.map(|row| self.carried_secret(workspace, row)).transpose()
    }

    /// Stores a secret as another node has it. If another one has its name here, no sandbox can use that any more.
    pub fn adopt_secret(&self, workspace: &str, secret: &CarriedSecret) -> Result<(), NetworkError> {
        let CarriedSecret { id, name, hosts, placements, created_at, value } = secret;
        let sealed = self.shared.seal_secret(workspace, name, value.as_bytes())?;
        let known = self.shared.store.secrets(workspace)?;
        if known.iter().any(|row| row.name == *name && row.id != *id) {
            self.shared.store.remove_secret(workspace, name)?;
        }
        let row = SecretRow {
            id: id.clone(),
            name: name.clone(),
            hosts: hosts.clone(),
            placements: placements.clone(),
            created_at: *created_at,
            sealed,
        };
        self.shared.store.put_secret(workspace, &row)?;
        self.secrets_changed(workspace);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use sandling_network::Placement;

    use super::*;
    use crate::model::DEFAULT_WORKSPACE;
    use crate::network::networks::tests::home;

    fn set(networks: &Networks, value: &str) {
        let (hosts, placements) = (vec!["api.example.com".parse().unwrap()], vec![Placement::default()]);
        networks.set_secret(DEFAULT_WORKSPACE, "KEY", value.to_owned().into(), hosts, placements).unwrap();
    }

    fn export(networks: &Networks) -> CarriedSecret {
        networks.export_secret(DEFAULT_WORKSPACE, "KEY").unwrap().unwrap()
    }

    #[test]
    fn a_secret_is_the_same_in_the_other_home_and_its_own_of_that_name_is_not() {
        let ((_a, one), (_b, other)) = (home(), home());
        set(&one, "first");
        set(&other, "own");
        let own = other.secret_versions().unwrap();
        other.adopt_secret(DEFAULT_WORKSPACE, &export(&one)).unwrap();
        assert_eq!(other.secret_versions().unwrap(), one.secret_versions().unwrap());
        assert_ne!(other.secret_versions().unwrap()[0].id, own[0].id);
        assert_eq!(export(&other).value, "first");
        std::thread::sleep(std::time::Duration::from_millis(2));
        set(&one, "second");
        assert_ne!(other.secret_versions().unwrap(), one.secret_versions().unwrap());
        other.adopt_secret(DEFAULT_WORKSPACE, &export(&one)).unwrap();
        assert_eq!(
            (other.secret_versions().unwrap(), export(&other).value.as_str()),
            (one.secret_versions().unwrap(), "second")
        );
    }

    #[test]
    fn a_default_that_cannot_be_read_does_not_seem_to_be_gone() {
        let (_dir, networks) = home();
        let default = NetworkDefault { binding: Some(true), ..NetworkDefault::default() };
        networks.adopt_default(DEFAULT_WORKSPACE, None, Some(default.clone())).unwrap();
        networks.adopt_default(DEFAULT_WORKSPACE, Some("base"), Some(default.clone())).unwrap();
        let of = |template: Option<&str>| StoredDefault {
            workspace: DEFAULT_WORKSPACE.to_owned(),
            template: template.map(str::to_owned),
            default: default.clone(),
        };
        assert_eq!(networks.all_defaults().unwrap(), [of(None), of(Some("base"))]);
        networks.adopt_default(DEFAULT_WORKSPACE, Some("base"), None).unwrap();
        assert_eq!(networks.all_defaults().unwrap(), [of(None)]);
        networks.shared.store.connection().execute("UPDATE network_defaults SET detail = '{'", []).unwrap();
        assert!(networks.all_defaults().is_err());
    }
}
