//! What the store knows about a sandbox's network: its own settings, the defaults that it follows, and what its gateways
//! leave behind.

use sandling_network::policy::{Learned, Policy, TlsMode};
use sandling_network::{LimitRequest, Limits, Pin};
use sandling_wire::{CountsView, PolicyFrom};
use serde::{Deserialize, Serialize};

use super::format::Format;
use super::ids::{SandboxId, SecretId};

/// What a sandbox itself says about its network. It holds no secret's value. What holds for it is [`EffectivePolicy`].
///
/// Rows of before defaults were followed have a policy and limits in any case, those that came from defaults too. They
/// are read as the sandbox's own: what was promised to it stays, and no default opens what was closed.
///
/// [`EffectivePolicy`]: super::EffectivePolicy
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
    /// Headers that the gateway sets in its requests, encrypted: they may contain credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header_rules: Option<String>,
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

impl NetworkSettings {
    /// Whether it says itself that some of its TLS is to be opened.
    pub(crate) fn opens_tls(&self) -> bool {
        !self.secrets.is_empty()
            || self.header_rules.is_some()
            || self.policy.as_ref().is_some_and(|policy| policy.tls == TlsMode::Inspected)
    }

    /// What a copy of the sandbox has: the same policy, or the same defaults that it follows, the secrets only if they
    /// are given to it, and no group.
    pub(crate) fn for_child(&self, secrets: bool) -> Self {
        let secrets = if secrets { self.secrets.clone() } else { Vec::new() };
        Self { secrets, group: None, ..self.clone() }
    }
}

/// Which group a sandbox is in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    pub group: String,
    /// What the others call it, besides its id.
    pub hostname: Option<String>,
}

impl Membership {
    /// Whether the group and the hostname are labels of the DNS, and the hostname is not an id.
    pub(crate) fn is_valid(&self) -> bool {
        let hostname = self.hostname.as_deref();
        let is_id = hostname.is_some_and(|name| SandboxId::parse(name).is_some());
        is_word(&self.group) && !is_id && hostname.is_none_or(is_word)
    }

    /// The names by which others reach the sandbox of this id.
    pub fn names(&self, id: &SandboxId) -> Vec<String> {
        let words = self.hostname.as_deref().into_iter().chain([id.as_str()]);
        words.map(|word| format!("{word}.{DOMAIN}")).collect()
    }
}

/// The members of a group are known below this domain, which the public DNS does not use.
const DOMAIN: &str = "internal";
const LONGEST_WORD: usize = 40;

/// Letters, digits and dashes, as a name in the DNS has them.
fn is_word(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let ends = !text.starts_with('-') && !text.ends_with('-');
    !text.is_empty() && text.len() <= LONGEST_WORD && text.bytes().all(plain) && ends
}

/// A default. What it does not say is left to the next.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkDefault {
    pub policy: Option<Policy>,
    pub limits: LimitRequest,
    /// Whether it is the most that any sandbox may reach and use, whatever that says itself. Only a workspace's is.
    pub binding: Option<bool>,
    #[serde(flatten)]
    pub format: Format<1>,
}

/// A default as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredDefault {
    pub workspace: String,
    /// `None` for the workspace's own.
    pub template: Option<String>,
    pub default: NetworkDefault,
}

/// What tells one value of a secret from another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretVersion {
    pub workspace: String,
    pub name: String,
    pub id: SecretId,
    pub created_ms: i64,
}

/// What holds for a sandbox. Until it is known that is nothing at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EffectivePolicy {
    pub policy: Policy,
    pub from: PolicyFrom,
    /// The workspace's policy, if it binds: nothing beyond it is reached, whatever the other says.
    pub bound: Option<Policy>,
    pub limits: Limits,
    /// Names of secrets that it was given and that were removed since.
    pub revoked: Vec<String>,
}

impl EffectivePolicy {
    /// Whether all of its TLS has to be opened.
    pub(crate) fn inspects(&self) -> bool {
        self.bound.iter().chain([&self.policy]).any(|policy| policy.tls == TlsMode::Inspected)
    }

    /// What is written down of a change.
    pub(crate) fn detail(&self) -> serde_json::Value {
        serde_json::json!({ "policy": self.policy, "from": self.from, "bound": self.bound, "limits": self.limits })
    }
}

/// What a sandbox's gateways leave to the next one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SavedState {
    pub(crate) pins: Vec<Pin>,
    pub(crate) counts: CountsView,
    pub(crate) learned: Learned,
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

    fn membership(group: &str, hostname: Option<&str>) -> Membership {
        Membership { group: group.to_owned(), hostname: hostname.map(str::to_owned) }
    }

    #[test]
    fn names_are_words_of_the_dns() {
        let id = SandboxId::parse("0f5b2c9e-3c4d-4e5f-8a9b-0c1d2e3f4a5b").unwrap();
        let names = membership("crawl", Some("db")).names(&id);
        assert_eq!(names, ["db.internal", "0f5b2c9e-3c4d-4e5f-8a9b-0c1d2e3f4a5b.internal"]);
        assert!(membership("crawl-2", Some("db")).is_valid());
        for bad in ["", "a.b", "-a", "A", "a b", &"a".repeat(41), "ä", "0f5b2c9e-3c4d-4e5f-8a9b-0c1d2e3f4a5b"] {
            assert!(!membership("crawl", Some(bad)).is_valid(), "{bad}");
        }
        assert!(!membership("a/b", None).is_valid());
    }
}
