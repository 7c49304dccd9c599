//! What one sandbox may reach, as it is asked for and as it is kept.

use sandling_network::LimitRequest;
use sandling_network::policy::{Policy, TlsMode};
use serde::{Deserialize, Serialize};

use super::error::NetworkError;
use super::groups::Membership;
use super::secrets::SecretId;
use crate::store::SecretRow;

/// More than anybody reads, and little enough to be looked through for every connection.
const MOST_ENTRIES: usize = 512;

/// What network a new sandbox is to have.
#[derive(Debug, Clone, Default)]
pub struct NetworkWish {
    /// Absent: it follows its template's default, then its workspace's, else it has none.
    pub policy: Option<Policy>,
    pub limits: LimitRequest,
    /// Secrets of its workspace, by name.
    pub secrets: Vec<String>,
    pub group: Option<Membership>,
}

/// What a sandbox itself says about its network. It holds no secret's value. What holds for it is [`InForce`].
///
/// Rows of before defaults were followed have a policy and limits in any case, those that came from defaults too. They
/// are read as the sandbox's own: what was promised to it stays, and no default opens what was closed.
///
/// [`InForce`]: super::InForce
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkSettings {
    /// Absent: it follows the defaults.
    pub policy: Option<Policy>,
    /// Each that is absent is the defaults'.
    pub limits: LimitRequest,
    pub secrets: Vec<AttachedSecret>,
    /// Its guest was told to trust an authority of its own, so that TLS can be opened.
    pub has_authority: bool,
    pub group: Option<Membership>,
}

/// A secret that a sandbox may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachedSecret {
    #[serde(default)]
    pub id: SecretId,
    pub name: String,
    /// What the guest holds instead.
    pub placeholder: String,
}

impl AttachedSecret {
    /// Whether it is this secret, and not another that is called so by now.
    pub(super) fn is_of(&self, row: &SecretRow) -> bool {
        self.name == row.name && self.id == row.id
    }
}

impl NetworkSettings {
    /// Whether it says itself that some of its TLS is to be opened.
    pub(crate) fn opens_tls(&self) -> bool {
        !self.secrets.is_empty() || self.policy.as_ref().is_some_and(|policy| policy.tls == TlsMode::Inspected)
    }

    /// What a copy of the sandbox has: the same policy, or the same defaults that it follows, the secrets only if they
    /// are given to it, and no group.
    pub(crate) fn for_child(&self, secrets: bool) -> Self {
        let secrets = if secrets { self.secrets.clone() } else { Vec::new() };
        Self { secrets, group: None, ..self.clone() }
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
        let (id, name) = (SecretId::fresh(), "KEY".to_owned());
        let secret = AttachedSecret { id, name, placeholder: "sandling-placeholder".into() };
        let policy = Policy::allow(["example.com".parse().unwrap()]);
        let limits = LimitRequest { connections: Some(3), ..LimitRequest::default() };
        let parent =
            NetworkSettings { policy: Some(policy), limits, secrets: vec![secret], ..NetworkSettings::default() };
        let child = parent.for_child(false);
        assert_eq!((&child.policy, child.secrets.len(), child.opens_tls()), (&parent.policy, 0, false));
        assert_eq!(child.limits, limits);
        assert_eq!(parent.for_child(true), parent);
        assert_eq!(NetworkSettings::default().for_child(false).policy, None, "it follows as its parent does");
    }

    #[test]
    fn a_row_of_before_keeps_what_it_says() {
        let read = |text| serde_json::from_str::<NetworkSettings>(text).unwrap();
        let closed = r#"{"policy":{"mode":"deny","allow":[],"tls":"sealed"},"limits":{"connections":7},"secrets":[],
            "has_authority":false,"group":null}"#;
        assert_eq!((read(closed).policy, read(closed).limits.connections), (Some(Policy::default()), Some(7)));
        let given = r#"{"secrets":[{"name":"KEY","placeholder":"sandling-placeholder"}],"has_authority":true}"#;
        assert_eq!(read(given).secrets[0].id, SecretId::default());
        let silent = serde_json::to_string(&NetworkSettings::default()).unwrap();
        assert_eq!(read(&silent).policy, None);
    }
}
