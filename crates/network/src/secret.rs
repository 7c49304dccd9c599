//! Secrets that never enter the guest: it holds a placeholder, the gateway knows the value.
//!
//! The store, its encryption and who may read it are the engine's; a set is handed in and can be replaced at any time.

use std::fmt;

use thiserror::Error;
use zeroize::Zeroizing;

use crate::name::HostName;
use crate::policy::{Entry, Target};

/// The shortest placeholder: a short one could appear by chance.
const SHORTEST_PLACEHOLDER: usize = 16;

/// A value of so many characters does not appear by chance.
pub(crate) const UNMISTAKABLE: usize = 8;

/// One secret of one sandbox.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    name: String,
    placeholder: String,
    value: Zeroizing<String>,
    hosts: Vec<Entry>,
}

/// Why something cannot be a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BadSecret {
    #[error("a placeholder has at least {SHORTEST_PLACEHOLDER} letters, digits, - or _")]
    Placeholder,
    #[error("a secret's value has visible ASCII characters only, and at least one")]
    Value,
    #[error("a secret is bound to host names, at least one")]
    Hosts,
}

impl Secret {
    /// A secret `name` whose `value` replaces `placeholder` in requests to `hosts`.
    pub fn new(name: &str, placeholder: &str, value: String, hosts: Vec<Entry>) -> Result<Secret, BadSecret> {
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
        Ok(Secret { name: name.to_owned(), placeholder: placeholder.to_owned(), value, hosts })
    }

    /// What it is called in events.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the guest holds.
    pub fn placeholder(&self) -> &str {
        &self.placeholder
    }

    /// What the server gets.
    pub(crate) fn value(&self) -> &str {
        &self.value
    }

    /// Whether its value is found nowhere but where it was told.
    pub(crate) fn is_unmistakable(&self) -> bool {
        self.value.len() >= UNMISTAKABLE
    }

    /// Whether it may be placed into requests to `port` of `host`.
    pub fn is_for(&self, host: &HostName, port: u16) -> bool {
        self.hosts.iter().any(|entry| entry.covers_port_of_name(host, port))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Secret").field("name", &self.name).field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

/// All secrets of one sandbox at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecretSet(Vec<Secret>);

impl SecretSet {
    /// These secrets.
    pub fn new(secrets: Vec<Secret>) -> SecretSet {
        SecretSet(secrets)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Secret> {
        self.0.iter()
    }

    /// Those for `port` of `host`.
    pub fn bound_to(&self, host: &HostName, port: u16) -> Vec<&Secret> {
        self.0.iter().filter(|secret| secret.is_for(host, port)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(value: &str, hosts: &[&str]) -> Result<Secret, BadSecret> {
        let hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
        Secret::new("token", "sandling-placeholder-1", value.to_owned(), hosts)
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
