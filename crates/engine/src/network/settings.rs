//! What one sandbox may reach, as it is asked for and as it is kept.

use sandling_network::LimitWish;
use sandling_network::policy::{Policy, TlsMode};
use serde::{Deserialize, Serialize};

use super::error::NetworkError;
use super::groups::Membership;

/// More than anybody reads, and little enough to be looked through for every connection.
const MOST_ENTRIES: usize = 512;

/// What network a new sandbox is to have.
#[derive(Debug, Clone, Default)]
pub struct NetworkWish {
    /// Absent: its template's or its workspace's, else none.
    pub policy: Option<Policy>,
    pub limits: LimitWish,
    /// Secrets of its workspace, by name.
    pub secrets: Vec<String>,
    pub group: Option<Membership>,
}

/// The network that a sandbox has. It holds no secret's value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkSettings {
    pub policy: Policy,
    pub limits: LimitWish,
    pub secrets: Vec<AttachedSecret>,
    /// Its guest was told to trust an authority of its own, so that TLS can be opened.
    pub has_authority: bool,
    pub group: Option<Membership>,
}

/// A secret that a sandbox may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachedSecret {
    pub name: String,
    /// What the guest holds instead.
    pub placeholder: String,
}

impl NetworkSettings {
    /// Whether some of its TLS has to be opened.
    pub(crate) fn opens_tls(&self) -> bool {
        !self.secrets.is_empty() || self.policy.tls == TlsMode::Inspected
    }

    /// What a copy of the sandbox has: the same policy, the secrets only if they are given to it, and no group.
    pub(crate) fn for_child(&self, secrets: bool) -> Self {
        let secrets = if secrets { self.secrets.clone() } else { Vec::new() };
        let mut child = Self { secrets, group: None, ..self.clone() };
        child.has_authority = self.has_authority && child.opens_tls();
        child
    }
}

pub(super) fn check(policy: &Policy) -> Result<(), NetworkError> {
    if policy.allow.len().max(policy.deny.len()) > MOST_ENTRIES {
        Err(NetworkError::TooLong { most: MOST_ENTRIES })
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_has_the_policy_and_not_the_secrets() {
        let secret = AttachedSecret { name: "KEY".into(), placeholder: "sandling-placeholder".into() };
        let policy = Policy::allow(["example.com".parse().unwrap()]);
        let limits = LimitWish { connections: Some(3), ..LimitWish::default() };
        let parent = NetworkSettings {
            policy,
            limits,
            secrets: vec![secret],
            has_authority: true,
            ..NetworkSettings::default()
        };
        let child = parent.for_child(false);
        assert_eq!((&child.policy, child.secrets.len(), child.has_authority), (&parent.policy, 0, false));
        assert_eq!(child.limits, limits);
        assert_eq!(parent.for_child(true), parent);
    }
}
