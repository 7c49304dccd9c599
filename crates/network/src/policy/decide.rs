//! The decisions of one policy. [`Rules`](super::Rules) combine it with the ranges and the workspace's policy.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use super::entry::{Entry, NAMED_PORTS};
use super::refusal::Refusal;
use super::resolvers;
use crate::name::HostName;

/// What a sandbox may reach. The default allows nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    pub mode: Mode,
    /// Used in mode `allow` only.
    pub allow: Vec<Entry>,
    /// Addresses and networks that are refused in every mode, even if they are on the allow-list.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<Entry>,
    pub tls: TlsMode,
}

/// The base of a policy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Deny everything.
    #[default]
    Deny,
    /// Allow the destinations on the allow-list.
    Allow,
    /// Allow the public internet.
    Open,
    /// Allow the public internet, and record the destinations.
    Learn,
}

/// How TLS connections are treated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TlsMode {
    /// Check the server's name and forward the rest unread, except for hosts that have a secret.
    #[default]
    Sealed,
    /// Intercept every connection, and compare the host of each request with the server's name.
    Inspected,
}

/// Why an address may be connected to. Later reasons permit less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AllowedBy {
    /// Every public address is allowed.
    Open,
    /// The address is listed.
    Address,
    /// DNS returned it for a name that is listed with this port. The connection may use a protocol without names.
    NameAndPort,
    /// DNS returned it for a listed name, which the connection must show.
    Name,
}

/// What a connection shows in its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown<'a> {
    /// A name, in TLS or HTTP.
    Name(&'a HostName),
    /// TLS or HTTP without a name.
    Nameless,
    /// Neither TLS nor HTTP.
    OtherProtocol,
}

impl Policy {
    /// A policy that allows these entries.
    pub fn allow(entries: impl IntoIterator<Item = Entry>) -> Policy {
        Policy { mode: Mode::Allow, allow: entries.into_iter().collect(), ..Policy::default() }
    }

    /// A policy of this mode, without a list.
    pub fn of(mode: Mode) -> Policy {
        Policy { mode, ..Policy::default() }
    }

    /// Whether `name` may be resolved.
    pub(super) fn name(&self, name: &HostName) -> Result<(), Refusal> {
        if self.mode == Mode::Deny {
            return Err(Refusal::PolicyDenies);
        }
        if resolvers::is_resolver_name(name) {
            return Err(Refusal::PublicResolver);
        }
        match self.mode {
            Mode::Deny => Err(Refusal::PolicyDenies),
            Mode::Open | Mode::Learn => Ok(()),
            Mode::Allow if self.allow.iter().any(|entry| entry.covers_name(name)) => Ok(()),
            Mode::Allow => Err(Refusal::NotListed),
        }
    }

    /// Whether `port` of `address`, which is in no refused range, may be connected to, given the `names` that DNS
    /// returned it for.
    pub(super) fn address(&self, address: Ipv4Addr, port: u16, names: &[HostName]) -> Result<AllowedBy, Refusal> {
        if self.mode == Mode::Deny {
            return Err(Refusal::PolicyDenies);
        }
        if resolvers::is_dns_port(port) {
            return Err(Refusal::OtherDnsServer);
        }
        if resolvers::is_resolver_address(address) {
            return Err(Refusal::PublicResolver);
        }
        if self.deny.iter().any(|entry| entry.covers_address(address, port)) {
            return Err(Refusal::Denied);
        }
        match self.mode {
            Mode::Open | Mode::Learn => Ok(AllowedBy::Open),
            Mode::Deny | Mode::Allow => self.listed(address, port, names),
        }
    }

    fn listed(&self, address: Ipv4Addr, port: u16, names: &[HostName]) -> Result<AllowedBy, Refusal> {
        if self.allow.iter().any(|entry| entry.covers_address(address, port)) {
            return Ok(AllowedBy::Address);
        }
        let mut listed = names.iter().filter(|name| self.name(name).is_ok()).peekable();
        if listed.peek().is_none() {
            return Err(Refusal::NotListed);
        }
        if !listed.any(|name| self.allow.iter().any(|entry| entry.covers_port_of_name(name, port))) {
            return Err(Refusal::PortNotListed);
        }
        Ok(if NAMED_PORTS.contains(&port) { AllowedBy::Name } else { AllowedBy::NameAndPort })
    }

    /// Whether a connection that was allowed for this reason may go on, given what it shows and the `names` of its
    /// address.
    pub(super) fn shown(
        &self,
        allowed_by: AllowedBy,
        port: u16,
        shown: Shown<'_>,
        names: &[HostName],
    ) -> Result<(), Refusal> {
        match (shown, allowed_by) {
            // An address without a resolved name may show any allowed name. Otherwise it must show one of the resolved
            // names.
            (Shown::Name(name), AllowedBy::Open) if names.is_empty() || names.contains(name) => self.name(name),
            (Shown::Name(name), AllowedBy::Open) => self.name(name).and(Err(Refusal::NameNotPinned)),
            (Shown::Name(name), _) => self.shown_name(allowed_by, port, name, names),
            (Shown::Nameless | Shown::OtherProtocol, AllowedBy::Open | AllowedBy::Address) => Ok(()),
            (Shown::Nameless, AllowedBy::Name | AllowedBy::NameAndPort) => Err(Refusal::NameMissing),
            (Shown::OtherProtocol, AllowedBy::Name) => Err(Refusal::OtherProtocol),
            (Shown::OtherProtocol, AllowedBy::NameAndPort) => Ok(()),
        }
    }

    fn shown_name(&self, allowed_by: AllowedBy, port: u16, name: &HostName, names: &[HostName]) -> Result<(), Refusal> {
        self.name(name)?;
        if !names.contains(name) {
            return Err(Refusal::NameNotPinned);
        }
        let listed = self.allow.iter().any(|entry| entry.covers_port_of_name(name, port));
        if listed || allowed_by == AllowedBy::Address { Ok(()) } else { Err(Refusal::PortNotListed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_read_from_json() {
        let text = r#"{"mode":"allow","allow":["pypi","*.example.com:8443","93.184.216.0/24"]}"#;
        let policy: Policy = serde_json::from_str(text).unwrap();
        assert_eq!(policy.allow.len(), 3);
        assert_eq!(serde_json::from_str::<Policy>(&serde_json::to_string(&policy).unwrap()).unwrap(), policy);
        assert!(serde_json::from_str::<Policy>(r#"{"mode":"allow","alow":[]}"#).is_err());
    }
}
