//! One policy and what it says by itself; [`Rules`](super::Rules) put it together with all else that is asked.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use super::entry::{Entry, NAMED_PORTS};
use super::refusal::Refusal;
use super::resolvers;
use crate::name::HostName;

/// What a sandbox may reach. The default reaches nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    pub mode: Mode,
    /// Read in mode `allow` only.
    pub allow: Vec<Entry>,
    /// Addresses and networks that are refused whatever the mode and the list say.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<Entry>,
    pub tls: TlsMode,
}

/// How a policy starts out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Nothing.
    #[default]
    Deny,
    /// What is listed.
    Allow,
    /// The public internet.
    Open,
    /// The public internet, and what was used is written down.
    Learn,
}

/// What is done with TLS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TlsMode {
    /// The server's name is checked and the rest passed on sealed, except to hosts that have a secret.
    #[default]
    Sealed,
    /// Every connection is opened and each request's host compared with the server's name.
    Inspected,
}

/// On what ground an address may be connected to: the later, the less may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ground {
    /// Every public address may.
    Open,
    /// The address is listed.
    Address,
    /// It was resolved for a name listed with just this port, where no name may be there to show.
    NameAndPort,
    /// It was resolved for a listed name, which the connection must show.
    Name,
}

/// What a connection shows of itself in its first bytes.
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
    /// A policy that allows what is listed.
    pub fn allow(entries: impl IntoIterator<Item = Entry>) -> Policy {
        Policy { mode: Mode::Allow, allow: entries.into_iter().collect(), ..Policy::default() }
    }

    /// A policy of this mode without a list.
    pub fn of(mode: Mode) -> Policy {
        Policy { mode, ..Policy::default() }
    }

    /// May `name` be resolved?
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

    /// May `port` of `address`, which is in no refused range, be connected to, given the `names` it was resolved for?
    pub(super) fn address(&self, address: Ipv4Addr, port: u16, names: &[HostName]) -> Result<Ground, Refusal> {
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
            Mode::Open | Mode::Learn => Ok(Ground::Open),
            Mode::Deny | Mode::Allow => self.listed(address, port, names),
        }
    }

    fn listed(&self, address: Ipv4Addr, port: u16, names: &[HostName]) -> Result<Ground, Refusal> {
        if self.allow.iter().any(|entry| entry.covers_address(address, port)) {
            return Ok(Ground::Address);
        }
        let mut listed = names.iter().filter(|name| self.name(name).is_ok()).peekable();
        if listed.peek().is_none() {
            return Err(Refusal::NotListed);
        }
        if !listed.any(|name| self.allow.iter().any(|entry| entry.covers_port_of_name(name, port))) {
            return Err(Refusal::PortNotListed);
        }
        Ok(if NAMED_PORTS.contains(&port) { Ground::Name } else { Ground::NameAndPort })
    }

    /// May a connection that was allowed on this ground go on, given what it shows and the `names` of its address?
    pub(super) fn shown(&self, ground: Ground, port: u16, shown: Shown<'_>, names: &[HostName]) -> Result<(), Refusal> {
        match (shown, ground) {
            // Whoever resolved no name for an address had it from elsewhere; whoever did must mean one of them.
            (Shown::Name(name), Ground::Open) if names.is_empty() || names.contains(name) => self.name(name),
            (Shown::Name(name), Ground::Open) => self.name(name).and(Err(Refusal::NameNotPinned)),
            (Shown::Name(name), _) => self.shown_name(ground, port, name, names),
            (Shown::Nameless | Shown::OtherProtocol, Ground::Open | Ground::Address) => Ok(()),
            (Shown::Nameless, Ground::Name | Ground::NameAndPort) => Err(Refusal::NameMissing),
            (Shown::OtherProtocol, Ground::Name) => Err(Refusal::OtherProtocol),
            (Shown::OtherProtocol, Ground::NameAndPort) => Ok(()),
        }
    }

    fn shown_name(&self, ground: Ground, port: u16, name: &HostName, names: &[HostName]) -> Result<(), Refusal> {
        self.name(name)?;
        if !names.contains(name) {
            return Err(Refusal::NameNotPinned);
        }
        let listed = self.allow.iter().any(|entry| entry.covers_port_of_name(name, port));
        if listed || ground == Ground::Address { Ok(()) } else { Err(Refusal::PortNotListed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_written_as_plain_text() {
        let text = r#"{"mode":"allow","allow":["pypi","*.example.com:8443","93.184.216.0/24"]}"#;
        let policy: Policy = serde_json::from_str(text).unwrap();
        assert_eq!(policy.allow.len(), 3);
        assert_eq!(serde_json::from_str::<Policy>(&serde_json::to_string(&policy).unwrap()).unwrap(), policy);
        assert!(serde_json::from_str::<Policy>(r#"{"mode":"allow","alow":[]}"#).is_err());
    }
}
