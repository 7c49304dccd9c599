//! An entry of an allow-list: a name, a wildcard, an address, a network or a preset, with its ports.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::preset::Preset;
use super::resolvers;
use crate::name::{HostName, NotAName};

/// The default ports of a listed name. On these the gateway can see the name itself.
pub const NAMED_PORTS: [u16; 2] = [80, 443];

/// An entry of an allow-list. Examples: `example.com`, `*.example.com:8443`, `93.184.216.0/24:8000-8100`, `pypi`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Entry {
    pub target: Target,
    pub ports: Ports,
}

/// What an entry matches.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    /// Exactly this name.
    Name(HostName),
    /// Every subdomain of this name.
    Below(HostName),
    /// Addresses.
    Network(Ipv4Net),
    /// The hosts that a tool needs.
    Preset(Preset),
}

/// The ports of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ports {
    /// The default: 80 and 443 for names, all ports for addresses.
    Usual,
    /// From the first to the last.
    Only(u16, u16),
}

/// Why a text is not an entry.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadEntry {
    #[error("{text:?} is not a host name, an address, a network or a preset")]
    Name { text: String, source: NotAName },
    #[error("{0:?} is a URL; write only the host, such as `example.com`")]
    Url(String),
    #[error("{0:?} is a list; give one entry at a time, with one port or one range of ports")]
    Several(String),
    #[error("{0:?} is not a network; write it like `192.0.2.0/24`")]
    Network(String),
    #[error("the ports in {0:?} are not valid; write a port, a range such as `8000-8100`, or `*`")]
    Ports(String),
    #[error("{0:?} is IPv6, which the gateway does not support")]
    Ipv6(String),
    #[error("{0:?} would allow every name; use the mode `open` instead")]
    Everything(String),
    #[error("{0:?} is a preset with ports; presets have their own ports, so leave the ports out")]
    PresetPorts(String),
}

impl Ports {
    /// Whether `port` is included. `usual` holds the default ports; if it is empty, all ports are the default.
    fn include(self, port: u16, usual: &[u16]) -> bool {
        match self {
            Ports::Usual => usual.is_empty() || usual.contains(&port),
            Ports::Only(first, last) => (first..=last).contains(&port),
        }
    }
}

impl Entry {
    /// Whether `name` may be resolved, for any port.
    pub fn covers_name(&self, name: &HostName) -> bool {
        match &self.target {
            Target::Name(own) => own == name,
            Target::Below(parent) => name.is_below(parent),
            Target::Network(_) => false,
            Target::Preset(preset) => preset.covers(name),
        }
    }

    /// Whether `port` of `name` may be connected to.
    pub fn covers_port_of_name(&self, name: &HostName, port: u16) -> bool {
        self.covers_name(name) && self.ports.include(port, &NAMED_PORTS)
    }

    /// Whether it names a public DNS resolver, which no policy lets a guest reach.
    pub fn names_resolver(&self) -> bool {
        match &self.target {
            Target::Name(name) => resolvers::is_resolver_name(name),
            Target::Network(net) => net.prefix_len() >= 24 && resolvers::is_resolver_address(net.network()),
            Target::Below(_) | Target::Preset(_) => false,
        }
    }

    /// Whether `port` of `address` may be connected to without a name.
    pub fn covers_address(&self, address: Ipv4Addr, port: u16) -> bool {
        matches!(&self.target, Target::Network(net) if net.contains(&address)) && self.ports.include(port, &[])
    }
}

impl FromStr for Entry {
    type Err = BadEntry;

    fn from_str(text: &str) -> Result<Entry, BadEntry> {
        let text = text.trim();
        if text.contains("://") {
            return Err(BadEntry::Url(text.to_owned()));
        }
        if text.contains(',') {
            return Err(BadEntry::Several(text.to_owned()));
        }
        if text.starts_with('[') || text.matches(':').count() > 1 {
            return Err(BadEntry::Ipv6(text.to_owned()));
        }
        let (host, ports) = match text.split_once(':') {
            Some((host, ports)) => (host, parse_ports(ports).ok_or_else(|| BadEntry::Ports(text.to_owned()))?),
            None => (text, Ports::Usual),
        };
        match parse_target(host, text)? {
            Target::Preset(_) if ports != Ports::Usual => Err(BadEntry::PresetPorts(text.to_owned())),
            target => Ok(Entry { target, ports }),
        }
    }
}

fn parse_ports(text: &str) -> Option<Ports> {
    if text == "*" {
        return Some(Ports::Only(1, u16::MAX));
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (1..=last).contains(&first).then_some(Ports::Only(first, last))
}

fn parse_target(host: &str, text: &str) -> Result<Target, BadEntry> {
    match (host.parse::<IpAddr>(), host.parse::<IpNet>()) {
        (Ok(IpAddr::V4(address)), _) => return Ok(Target::Network(Ipv4Net::from(address))),
        (_, Ok(IpNet::V4(net))) => return Ok(Target::Network(net.trunc())),
        (Ok(IpAddr::V6(_)), _) | (_, Ok(IpNet::V6(_))) => return Err(BadEntry::Ipv6(text.to_owned())),
        _ => {}
    }
    if host == "*" || host == "*." {
        return Err(BadEntry::Everything(text.to_owned()));
    }
    if host.split_once('/').is_some_and(|(address, _)| address.parse::<IpAddr>().is_ok()) {
        return Err(BadEntry::Network(text.to_owned()));
    }
    let name = |host: &str| host.parse::<HostName>().map_err(|source| BadEntry::Name { text: text.to_owned(), source });
    if let Some(parent) = host.strip_prefix("*.") {
        return Ok(Target::Below(name(parent)?));
    }
    // A text that looks like a preset must be one, so that it reads back as the same entry.
    let name = name(host)?;
    Ok(name.as_str().parse().map_or(Target::Name(name), Target::Preset))
}

impl TryFrom<String> for Entry {
    type Error = BadEntry;

    fn try_from(text: String) -> Result<Entry, BadEntry> {
        text.parse()
    }
}

impl From<Entry> for String {
    fn from(entry: Entry) -> String {
        entry.to_string()
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.target {
            Target::Name(name) => write!(out, "{name}")?,
            Target::Below(parent) => write!(out, "*.{parent}")?,
            Target::Network(net) if net.prefix_len() == 32 => write!(out, "{}", net.addr())?,
            Target::Network(net) => write!(out, "{net}")?,
            Target::Preset(preset) => write!(out, "{preset}")?,
        }
        match self.ports {
            Ports::Usual => Ok(()),
            Ports::Only(1, u16::MAX) => write!(out, ":*"),
            Ports::Only(first, last) if first == last => write!(out, ":{first}"),
            Ports::Only(first, last) => write!(out, ":{first}-{last}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(text: &str) -> Entry {
        text.parse().unwrap()
    }

    #[test]
    fn a_name_covers_itself_on_the_default_ports() {
        let (own, below) = ("example.com".parse().unwrap(), "a.example.com".parse().unwrap());
        assert!(entry("Example.com.").covers_port_of_name(&own, 443));
        assert!(!entry("example.com").covers_port_of_name(&own, 22));
        assert!(!entry("example.com").covers_name(&below));
        assert!(entry("example.com:22").covers_port_of_name(&own, 22));
        assert!(!entry("example.com:22").covers_port_of_name(&own, 443));
        assert!(entry("*.example.com:*").covers_port_of_name(&below, 9));
        assert!(!entry("*.example.com").covers_name(&own));
    }

    #[test]
    fn an_address_covers_all_its_ports() {
        assert!(entry("93.184.216.34").covers_address(Ipv4Addr::new(93, 184, 216, 34), 22));
        assert!(entry("93.184.216.99/24:8000-8100").covers_address(Ipv4Addr::new(93, 184, 216, 1), 8100));
        assert!(!entry("93.184.216.99/24:8000-8100").covers_address(Ipv4Addr::new(93, 184, 216, 1), 8101));
        assert!(!entry("93.184.216.34").covers_name(&"a.b".parse().unwrap()));
    }

    #[test]
    fn invalid_entries_are_refused() {
        assert!(matches!("*".parse::<Entry>(), Err(BadEntry::Everything(_))));
        for text in ["::1", "[::1]:80", "2001:db8::/32", "::ffff:1.2.3.4"] {
            assert!(matches!(text.parse::<Entry>(), Err(BadEntry::Ipv6(_))), "{text}");
        }
        for text in ["a.com:0", "a.com:70000", "a.com:5-4", "a.com:", "a.com:x"] {
            assert!(matches!(text.parse::<Entry>(), Err(BadEntry::Ports(_))), "{text}");
        }
        for text in ["a.*.com", "**.a.com", "", "a/b", "1.2.3", "https//a.com"] {
            assert!(matches!(text.parse::<Entry>(), Err(BadEntry::Name { .. })), "{text}");
        }
        assert!(matches!("pypi:22".parse::<Entry>(), Err(BadEntry::PresetPorts(_))));
        assert!(matches!("https://a.com/".parse::<Entry>(), Err(BadEntry::Url(_))));
        assert!(matches!("a.com:80,443".parse::<Entry>(), Err(BadEntry::Several(_))));
        assert!(matches!("10.0.0.0/33".parse::<Entry>(), Err(BadEntry::Network(_))));
    }

    #[test]
    fn presets_are_read_in_any_case() {
        for text in ["pypi", "PyPI", "pypi."] {
            assert_eq!(entry(text).target, Target::Preset(Preset::Pypi), "{text}");
        }
    }

    proptest! {
        #[test]
        fn an_entry_reads_back_from_its_text(text in "(\\*\\.)?[a-z0-9-]{1,9}(\\.[a-z]{2,5}){1,2}(:[1-9][0-9]{0,3})?") {
            let entry = entry(&text);
            prop_assert_eq!(entry.to_string().parse::<Entry>().unwrap(), entry);
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,40}") {
            let _ = text.parse::<Entry>();
        }
    }
}
