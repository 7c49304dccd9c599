//! Secrets that never enter the guest. The guest holds a placeholder, and only the gateway knows the value.
//!
//! The engine stores and encrypts the secrets and controls access to them. It gives the gateway a set, which it can
//! replace at any time.

use std::fmt;

use thiserror::Error;
use zeroize::Zeroizing;

use crate::name::HostName;
use crate::placement::Placement;
use crate::policy::{Entry, Target};

/// The shortest placeholder. A shorter one could appear in other data by chance.
const SHORTEST_PLACEHOLDER: usize = 16;

const MOST_PLACEMENTS: usize = 16;

/// A value of this length does not appear in other data by chance.
pub(crate) const UNMISTAKABLE: usize = 8;

/// One secret of one sandbox.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    name: String,
    placeholder: String,
    value: Zeroizing<String>,
    hosts: Vec<Entry>,
    placements: Vec<Placement>,
}

/// Why a secret is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BadSecret {
    #[error("a placeholder needs at least {SHORTEST_PLACEHOLDER} characters: letters, digits, - and _")]
    Placeholder,
    #[error("a secret's value must not be empty, and may contain printable ASCII characters only")]
    Value,
    #[error("a secret needs at least one host name that it is for; addresses and presets are not allowed")]
    Hosts,
    #[error("a secret needs 1 to {MOST_PLACEMENTS} placements")]
    Placements,
}

impl Secret {
    /// A secret `name` whose `value` replaces `placeholder` in requests to `hosts`, at these `placements`.
    pub fn new(
        name: &str,
        placeholder: &str,
        value: String,
        hosts: Vec<Entry>,
        placements: Vec<Placement>,
    ) -> Result<Secret, BadSecret> {
        let value = Zeroizing::new(value);
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if placeholder.len() < SHORTEST_PLACEHOLDER || !placeholder.bytes().all(plain) {
            return Err(BadSecret::Placeholder);
        }
        if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ') {
            return Err(BadSecret::Value);
        }
        let named = |host: &Entry| matches!(host.target, Target::Name(_) | Target::Below(_));
        if hosts.is_empty() || !hosts.iter().all(named) {
            return Err(BadSecret::Hosts);
        }
        if placements.is_empty() || placements.len() > MOST_PLACEMENTS {
            return Err(BadSecret::Placements);
        }
        Ok(Secret { name: name.to_owned(), placeholder: placeholder.to_owned(), value, hosts, placements })
    }

    /// The name that events use.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The placeholder that the guest holds.
    pub fn placeholder(&self) -> &str {
        &self.placeholder
    }

    /// The value that the server gets.
    pub(crate) fn value(&self) -> &str {
        &self.value
    }

    /// Where in a request the gateway may insert it.
    pub(crate) fn placements(&self) -> &[Placement] {
        &self.placements
    }

    /// Whether the value is long enough not to appear in other data by chance.
    pub(crate) fn is_unmistakable(&self) -> bool {
        self.value.len() >= UNMISTAKABLE
    }

    /// Whether the gateway may insert it into requests to `port` of `host`.
    pub fn is_for(&self, host: &HostName, port: u16) -> bool {
        self.hosts.iter().any(|entry| entry.covers_port_of_name(host, port))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Secret").field("name", &self.name).field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

/// All secrets of one sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecretSet(Vec<Secret>);

impl SecretSet {
    /// A set of these secrets.
    pub fn new(secrets: Vec<Secret>) -> SecretSet {
        SecretSet(secrets)
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over the secrets.
    pub fn iter(&self) -> impl Iterator<Item = &Secret> {
        self.0.iter()
    }

    /// The secrets for `port` of `host`.
    pub fn bound_to(&self, host: &HostName, port: u16) -> Vec<&Secret> {
        self.0.iter().filter(|secret| secret.is_for(host, port)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(value: &str, hosts: &[&str]) -> Result<Secret, BadSecret> {
        let hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
        Secret::new("token", "sandling-placeholder-1", value.to_owned(), hosts, vec![Placement::default()])
    }

    #[test]
    fn a_secret_is_bound_to_names() {
        assert!(secret("v", &["api.example.com"]).unwrap().is_for(&"api.example.com".parse().unwrap(), 443));
        assert!(!secret("v", &["api.example.com"]).unwrap().is_for(&"example.com".parse().unwrap(), 443));
        assert_eq!(secret("v", &[]), Err(BadSecret::Hosts));
        assert_eq!(secret("v", &["93.184.216.34"]), Err(BadSecret::Hosts));
        assert_eq!(secret("v", &["pypi"]), Err(BadSecret::Hosts));
    }

    #[test]
    fn a_value_cannot_end_a_header() {
        for value in ["", "a\r\nHost: evil.com", "a\0", "ä"] {
            assert_eq!(secret(value, &["a.com"]), Err(BadSecret::Value), "{value:?}");
        }
    }

    #[test]
    fn a_secret_is_not_printed() {
        assert!(!format!("{:?}", secret("hunter2", &["a.com"]).unwrap()).contains("hunter2"));
    }
}
