//! The variables of all processes of a sandbox. Its guest holds them in memory, and is told again when it boots.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::error::NetworkError;
use super::networks::Networks;
use super::prepare::in_guest;
use crate::model::{SandboxId, SandboxInfo};

type Variables = BTreeMap<String, String>;

fn purpose(sandbox: &SandboxId) -> String {
    format!("variables {sandbox}")
}

impl Networks {
    /// Encrypts variables for the row of a sandbox. They may contain what users keep secret.
    pub(crate) fn seal_variables(
        &self,
        sandbox: &SandboxId,
        variables: &Variables,
    ) -> Result<Option<String>, NetworkError> {
        if variables.is_empty() {
            return Ok(None);
        }
        let text = serde_json::to_vec(variables).map_err(|error| NetworkError::Key(error.into()))?;
        let sealed = self.shared.vault.seal(&purpose(sandbox), &text).map_err(NetworkError::Key)?;
        Ok(Some(STANDARD.encode(sealed)))
    }

    /// The variables of a sandbox, those for its secrets and its authority as they are now. Sandboxes of earlier versions
    /// have only these.
    pub(crate) fn variables(&self, info: &SandboxInfo) -> Result<Variables, NetworkError> {
        let mut variables = self.stored_variables(info)?;
        let has_authority = info.network.has_authority || !self.shared.gateways.extra_ca.is_empty();
        variables.extend(in_guest(&info.network.secrets, has_authority));
        Ok(variables)
    }

    /// The variables that a sandbox was created with.
    pub(super) fn stored_variables(&self, info: &SandboxInfo) -> Result<Variables, NetworkError> {
        let Some(sealed) = &info.variables else { return Ok(Variables::new()) };
        let unreadable = |error: String| NetworkError::Key(std::io::Error::other(error));
        let sealed = STANDARD.decode(sealed).map_err(|error| unreadable(error.to_string()))?;
        let text = self.shared.vault.open(&purpose(&info.id), &sealed).map_err(NetworkError::Key)?;
        serde_json::from_slice(&text).map_err(|error| unreadable(error.to_string()))
    }
}
