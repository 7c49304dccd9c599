//! What goes with a sandbox to another home: what this home keeps encrypted, and what its gateways left. The other home
//! encrypts it with its own key.

use std::collections::BTreeMap;
use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use sandling_network::policy::{Entry, Policy};
use sandling_network::{HeaderRules, Placement};
use serde::{Deserialize, Serialize};

use super::error::NetworkError;
use super::networks::Networks;
use crate::model::{NetworkSettings, SandboxInfo, SavedState, SecretId};
use crate::store::SecretRow;

#[derive(Serialize, Deserialize)]
pub(crate) struct CarriedNetwork {
    variables: BTreeMap<String, String>,
    header_rules: HeaderRules,
    /// The certificate authority that its guest trusts, with its key.
    authority: Option<String>,
    state: SavedState,
    /// Those of its secrets that have not been removed.
    secrets: Vec<CarriedSecret>,
}

/// A secret with its value.
#[derive(Serialize, Deserialize)]
pub struct CarriedSecret {
    pub(super) id: SecretId,
    pub(super) name: String,
    pub(super) hosts: Vec<Entry>,
    pub(super) placements: Vec<Placement>,
    pub(super) created_at: Timestamp,
    pub(super) value: String,
}

/// A secret that has come with a sandbox, encrypted for this home. It is stored when the sandbox is this home's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ArrivingSecret {
    id: SecretId,
    name: String,
    hosts: Vec<Entry>,
    placements: Vec<Placement>,
    created_at: Timestamp,
    /// In base64.
    sealed: String,
}

/// What a sandbox may reach where it is. It must not reach anything else where it goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reach {
    policy: Policy,
    bound: Option<Policy>,
}

impl Networks {
    /// What a sandbox with these settings may reach here.
    pub(crate) fn reach(
        &self,
        workspace: &str,
        template: &str,
        settings: &NetworkSettings,
    ) -> Result<Reach, NetworkError> {
        let effective = self.shared.effective(workspace, template, settings)?;
        Ok(Reach { policy: effective.policy, bound: effective.bound })
    }

    /// Takes out of a row what only this home can decrypt.
    pub(crate) fn pack(&self, info: &mut SandboxInfo) -> Result<CarriedNetwork, NetworkError> {
        let carried = CarriedNetwork {
            variables: self.stored_variables(info)?,
            header_rules: self.header_rules_of(info)?,
            authority: self.shared.authority_text(&info.id)?,
            state: self.shared.store.gateway_state(info.id.as_str())?,
            secrets: self.carried_secrets(info)?,
        };
        (info.variables, info.network.header_rules) = (None, None);
        Ok(carried)
    }

    /// The names of its secrets that have not been removed.
    pub(crate) fn usable_secrets(&self, info: &SandboxInfo) -> Result<Vec<String>, NetworkError> {
        let rows = self.shared.store.secrets(&info.workspace)?;
        let attached = info.network.secrets.iter().filter(|attached| rows.iter().any(|row| attached.is_of(row)));
        Ok(attached.map(|attached| attached.name.clone()).collect())
    }

    fn carried_secrets(&self, info: &SandboxInfo) -> Result<Vec<CarriedSecret>, NetworkError> {
        let rows = self.shared.store.secrets(&info.workspace)?;
        let attached = info.network.secrets.iter();
        let valid = attached.filter_map(|attached| rows.iter().find(|row| attached.is_of(row)));
        valid.map(|row| self.carried_secret(&info.workspace, row)).collect()
    }

    pub(super) fn carried_secret(&self, workspace: &str, row: &SecretRow) -> Result<CarriedSecret, NetworkError> {
        let value = self.shared.secret_value(workspace, row)?;
        let SecretRow { id, name, hosts, placements, created_at, .. } = row.clone();
        Ok(CarriedSecret { id, name, hosts, placements, created_at, value })
    }

    /// Stores what [`pack`](Self::pack) took out of a row. A secret of the same name in the workspace here takes the place of
    /// the one that the sandbox had. Returns the secrets that this home lacks: it must not keep them if the sandbox goes on
    /// elsewhere after all.
    pub(crate) fn unpack(
        &self,
        info: &mut SandboxInfo,
        carried: &CarriedNetwork,
    ) -> Result<Vec<ArrivingSecret>, NetworkError> {
        info.variables = self.seal_variables(&info.id, &carried.variables)?;
        info.network.header_rules = self.seal_header_rules(&info.workspace, &carried.header_rules)?;
        if let Some(authority) = &carried.authority {
            self.shared.save_authority_text(&info.id, authority.as_bytes())?;
        }
        self.shared.store.save_gateway_state(info.id.as_str(), &carried.state)?;
        let rows = self.shared.store.secrets(&info.workspace)?;
        let mut arriving = Vec::new();
        for attached in &mut info.network.secrets {
            let valid = carried.secrets.iter().find(|secret| secret.name == attached.name && secret.id == attached.id);
            attached.id = match (valid, rows.iter().find(|row| row.name == attached.name)) {
                (Some(_), Some(row)) => row.id.clone(),
                (Some(secret), None) => {
                    arriving.push(self.seal_arriving(&info.workspace, secret)?);
                    secret.id.clone()
                }
                // One that was removed stays so, whatever is stored by its name here.
                (None, _) => SecretId::fresh(),
            };
        }
        Ok(arriving)
    }

    fn seal_arriving(&self, workspace: &str, secret: &CarriedSecret) -> Result<ArrivingSecret, NetworkError> {
        let sealed = self.shared.seal_secret(workspace, &secret.name, secret.value.as_bytes())?;
        let CarriedSecret { id, name, hosts, placements, created_at, .. } = secret;
        Ok(ArrivingSecret {
            id: id.clone(),
            name: name.clone(),
            hosts: hosts.clone(),
            placements: placements.clone(),
            created_at: *created_at,
            sealed: STANDARD.encode(sealed),
        })
    }

    /// Stores the secrets of a sandbox that is this home's now. One that somebody has stored by the same name meanwhile takes
    /// the place of the sandbox's. This can be repeated.
    pub(crate) fn store_arrived(&self, info: &mut SandboxInfo, secrets: &[ArrivingSecret]) -> Result<(), NetworkError> {
        let rows = self.shared.store.secrets(&info.workspace)?;
        for ArrivingSecret { id, name, hosts, placements, created_at, sealed } in secrets {
            if let Some(row) = rows.iter().find(|row| row.name == *name) {
                let attached = info.network.secrets.iter_mut();
                let attached = attached.filter(|attached| attached.id == *id && attached.name == *name);
                attached.for_each(|attached| attached.id = row.id.clone());
                continue;
            }
            let row = SecretRow {
                id: id.clone(),
                name: name.clone(),
                hosts: hosts.clone(),
                placements: placements.clone(),
                created_at: *created_at,
                sealed: STANDARD.decode(sealed).map_err(|error| NetworkError::Key(io::Error::other(error)))?,
            };
            self.shared.store.put_secret(&info.workspace, &row)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{DEFAULT_WORKSPACE, SandboxId};
    use crate::network::networks::tests::home;

    fn sandbox() -> SandboxInfo {
        let none = ["user_namespace", "mount_namespace", "network_namespace", "pid_namespace", "ipc_namespace"];
        let further = ["unprivileged_user", "no_capabilities", "no_new_privs", "seccomp"];
        let mut boundary: serde_json::Map<_, _> =
            none.into_iter().chain(further).map(|name| (name.to_owned(), true.into())).collect();
        boundary.insert("accelerator".to_owned(), "tcg".into());
        boundary.insert("landlock".to_owned(), "full".into());
        serde_json::from_value(serde_json::json!({
            "id": SandboxId::fresh_on(None), "template": "base", "image": "", "state": "hibernated", "vcpus": 1,
            "memory_mib": 1, "disk_mib": 1, "pids": 1, "created_at": Timestamp::now(), "boot_mode": "restore",
            "boot_ms": 1.0, "workspace": DEFAULT_WORKSPACE, "boundary": boundary,
            "lifetime": { "from": Timestamp::now(), "persistent": false },
        }))
        .unwrap()
    }

    #[test]
    fn secrets_and_variables_go_along_and_what_was_removed_does_not_come_back() {
        let ((_one, here), (_other, there), (_third, elsewhere)) = (home(), home(), home());
        let set = |networks: &Networks, name: &str, value: &str| {
            let (hosts, value) = (vec!["api.example.com".parse().unwrap()], value.to_owned().into());
            networks.set_secret(DEFAULT_WORKSPACE, name, value, hosts, vec![Placement::default()]).unwrap();
        };
        ["KEPT", "KNOWN", "REMOVED"].iter().for_each(|name| set(&here, name, "here"));
        let mut info = sandbox();
        let wanted = ["KEPT", "KNOWN", "REMOVED"].map(str::to_owned).to_vec();
        let granted = here.grant(DEFAULT_WORKSPACE, &info.network, &Some(wanted)).unwrap().secrets;
        info.network = info.network.given(&granted);
        let variables = BTreeMap::from([("A".to_owned(), "b".to_owned())]);
        info.variables = here.seal_variables(&info.id, &variables).unwrap();
        here.remove_secret(DEFAULT_WORKSPACE, "REMOVED").unwrap();
        set(&there, "KNOWN", "there");
        set(&there, "REMOVED", "there");

        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let stored = |networks: &Networks| {
            let rows = networks.shared.store.secrets(DEFAULT_WORKSPACE).unwrap().into_iter();
            let value = |row: &SecretRow| networks.shared.secret_value(DEFAULT_WORKSPACE, row).unwrap();
            rows.map(|row| (row.name.clone(), value(&row))).collect::<Vec<_>>()
        };
        let packed = here.pack(&mut info).unwrap();
        assert!(info.variables.is_none());
        let text = serde_json::to_string(&packed).unwrap();
        let arriving = there.unpack(&mut info, &serde_json::from_str(&text).unwrap()).unwrap();
        assert_eq!(stored(&there), [pair("KNOWN", "there"), pair("REMOVED", "there")], "it may go on elsewhere");
        let text = serde_json::to_string(&arriving).unwrap();
        assert!(!text.contains("here"), "values are encrypted: {text}");
        let arriving: Vec<ArrivingSecret> = serde_json::from_str(&text).unwrap();
        let mut too_late = info.clone();
        there.store_arrived(&mut info, &arriving).unwrap();
        there.store_arrived(&mut info, &arriving).unwrap();
        assert_eq!(there.stored_variables(&info).unwrap(), variables);
        let usable = |networks: &Networks, info: &SandboxInfo| {
            let rows = networks.shared.store.secrets(DEFAULT_WORKSPACE).unwrap();
            let attached = info.network.secrets.iter();
            let found = attached.filter_map(|attached| rows.iter().find(|row| attached.is_of(row)));
            let value = |row: &SecretRow| networks.shared.secret_value(DEFAULT_WORKSPACE, row).unwrap();
            found.map(|row| (row.name.clone(), value(row))).collect::<Vec<_>>()
        };
        assert_eq!(usable(&there, &info), [pair("KEPT", "here"), pair("KNOWN", "there")]);
        // Somebody has stored one by its name in the meantime.
        there.remove_secret(DEFAULT_WORKSPACE, "KEPT").unwrap();
        set(&there, "KEPT", "meanwhile");
        there.store_arrived(&mut too_late, &arriving).unwrap();
        assert_eq!(usable(&there, &too_late), [pair("KEPT", "meanwhile"), pair("KNOWN", "there")]);
        there.remove_secret(DEFAULT_WORKSPACE, "KEPT").unwrap();
        there.store_arrived(&mut info, &arriving).unwrap();

        let packed = there.pack(&mut info).unwrap();
        set(&elsewhere, "REMOVED", "elsewhere");
        let arriving = elsewhere.unpack(&mut info, &packed).unwrap();
        elsewhere.store_arrived(&mut info, &arriving).unwrap();
        assert_eq!(usable(&elsewhere, &info), [pair("KEPT", "here"), pair("KNOWN", "there")]);
    }
}
