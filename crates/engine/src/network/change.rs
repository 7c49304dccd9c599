//! Changing the network of a sandbox that runs.

use sandling_network::policy::{Policy, TlsMode};
use tokio::sync::oneshot;

use super::error::NetworkError;
use super::settings::{NetworkSettings, check};
use crate::sandbox::{Command, Sandbox};

/// What is to change. What is absent stays.
#[derive(Debug, Clone, Default)]
pub struct NetworkChange {
    pub policy: Option<Policy>,
    /// The secrets that it keeps, of those it has.
    pub secrets: Option<Vec<String>>,
}

impl NetworkSettings {
    pub(crate) fn changed(&self, change: NetworkChange) -> Result<Self, NetworkError> {
        let mut settings = self.clone();
        if let Some(policy) = change.policy {
            check(&policy)?;
            if policy.tls == TlsMode::Inspected && !self.has_authority {
                return Err(NetworkError::NoAuthority);
            }
            settings.policy = policy;
        }
        if let Some(kept) = change.secrets {
            let has = |name: &String| self.secrets.iter().any(|secret| secret.name == *name);
            if let Some(unknown) = kept.iter().find(|name| !has(name)) {
                return Err(NetworkError::NotAttached(unknown.clone()));
            }
            settings.secrets.retain(|secret| kept.contains(&secret.name));
        }
        Ok(settings)
    }
}

impl Sandbox {
    /// Changes its policy or takes secrets from it. It holds when this returns, also for open connections.
    pub async fn change_network(&self, change: NetworkChange) -> Result<NetworkSettings, NetworkError> {
        let (answer, answered) = oneshot::channel();
        self.commands.send(Command::SetNetwork { change, answer }).await.map_err(|_| NetworkError::Ended)?;
        answered.await.unwrap_or(Err(NetworkError::Ended))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::AttachedSecret;

    #[test]
    fn secrets_can_be_taken_and_not_added() {
        let secret = |name: &str| AttachedSecret { name: name.into(), placeholder: "sandling-placeholder".into() };
        let settings =
            NetworkSettings { secrets: vec![secret("A"), secret("B")], has_authority: true, ..Default::default() };
        let keep = |names: &[&str]| NetworkChange {
            secrets: Some(names.iter().map(|name| (*name).to_owned()).collect()),
            ..NetworkChange::default()
        };
        assert_eq!(settings.changed(keep(&["B"])).unwrap().secrets, [secret("B")]);
        assert!(matches!(settings.changed(keep(&["C"])), Err(NetworkError::NotAttached(name)) if name == "C"));
        assert_eq!(settings.changed(NetworkChange::default()).unwrap(), settings);
    }

    #[test]
    fn tls_is_opened_only_with_an_authority() {
        let policy = Some(Policy { tls: TlsMode::Inspected, ..Policy::default() });
        let change = NetworkChange { policy, ..NetworkChange::default() };
        assert!(matches!(NetworkSettings::default().changed(change), Err(NetworkError::NoAuthority)));
    }
}
