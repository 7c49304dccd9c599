//! Headers that the gateway sets in a sandbox's requests, encrypted in its row.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sandling_network::HeaderRules;

use super::error::NetworkError;
use super::networks::Networks;
use super::shared::Shared;
use crate::model::{NetworkSettings, SandboxInfo};

/// Bound to the workspace, because copies of a sandbox have its rules.
fn purpose(workspace: &str) -> String {
    format!("header rules {workspace}")
}

fn unreadable(error: impl std::error::Error + Send + Sync + 'static) -> NetworkError {
    NetworkError::Key(std::io::Error::other(error))
}

impl Networks {
    pub(crate) fn seal_header_rules(
        &self,
        workspace: &str,
        rules: &HeaderRules,
    ) -> Result<Option<String>, NetworkError> {
        if rules.is_empty() {
            return Ok(None);
        }
        let text = serde_json::to_vec(rules).map_err(unreadable)?;
        let sealed = self.shared.vault.seal(&purpose(workspace), &text).map_err(NetworkError::Key)?;
        Ok(Some(STANDARD.encode(sealed)))
    }

    /// The header rules of a sandbox.
    pub fn header_rules_of(&self, info: &SandboxInfo) -> Result<HeaderRules, NetworkError> {
        self.shared.open_header_rules(&info.workspace, &info.network)
    }
}

impl Shared {
    /// The rules for a gateway. Rules that cannot be read set no headers.
    pub(super) fn header_rules(&self, workspace: &str, settings: &NetworkSettings) -> HeaderRules {
        self.open_header_rules(workspace, settings).unwrap_or_else(|error| {
            tracing::error!(error = &error as &dyn std::error::Error, "header rules cannot be read; none is used");
            HeaderRules::default()
        })
    }

    fn open_header_rules(&self, workspace: &str, settings: &NetworkSettings) -> Result<HeaderRules, NetworkError> {
        let Some(sealed) = &settings.header_rules else { return Ok(HeaderRules::default()) };
        let sealed = STANDARD.decode(sealed).map_err(unreadable)?;
        let text = self.vault.open(&purpose(workspace), &sealed).map_err(NetworkError::Key)?;
        serde_json::from_slice(&text).map_err(unreadable)
    }
}
