//! The policy itself and the decisions it makes.

use std::net::Ipv4Addr;
use std::sync::Arc;

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use super::entry::{Entry, NAMED_PORTS};
use super::range::Range;
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

/// A policy together with what the operator opened and what is the host's own.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    pub policy: Policy,
    /// Networks outside the public internet that the operator, not the client, opened.
    pub opened: Vec<Ipv4Net>,
    /// The host's own addresses, public ones too.
    pub host: Arc<[Ipv4Addr]>,
}

/// On what ground an address may be connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ground {
    /// Every public address may.
    Open,
    /// The address is listed.
    Address,
    /// It was resolved for a listed name, which the connection must show.
    Name,
    /// It was resolved for a name listed with just this port, where no name may be there to show.
    NameAndPort,
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
}

impl Rules {
    /// May `name` be resolved?
    pub fn name(&self, name: &HostName) -> Result<(), Refusal> {
        if self.policy.mode == Mode::Deny {
            return Err(Refusal::PolicyDenies);
        }
        if resolvers::is_resolver_name(name) {
            return Err(Refusal::PublicResolver);
        }
        match self.policy.mode {
            Mode::Deny => Err(Refusal::PolicyDenies),
            Mode::Open | Mode::Learn => Ok(()),
            Mode::Allow if self.policy.allow.iter().any(|entry| entry.covers_name(name)) => Ok(()),
            Mode::Allow => Err(Refusal::NotListed),
        }
    }

    /// The range that refuses `address` whatever the policy says.
    pub fn refusing(&self, address: Ipv4Addr) -> Option<Range> {
        Range::refusing(address, &self.opened, &self.host)
    }

    /// May `port` of `address` be connected to, given the `names` it was resolved for?
    pub fn address(&self, address: Ipv4Addr, port: u16, names: &[HostName]) -> Result<Ground, Refusal> {
        if let Some(range) = self.refusing(address) {
            return Err(Refusal::Range(range));
        }
        if self.policy.mode == Mode::Deny {
            return Err(Refusal::PolicyDenies);
        }
        if resolvers::is_dns_port(port) {
            return Err(Refusal::OtherDnsServer);
        }
        if resolvers::is_resolver_address(address) {
            return Err(Refusal::PublicResolver);
        }
        if self.policy.deny.iter().any(|entry| entry.covers_address(address, port)) {
            return Err(Refusal::Denied);
        }
        match self.policy.mode {
            Mode::Open | Mode::Learn => Ok(Ground::Open),
            Mode::Deny | Mode::Allow => self.listed(address, port, names),
        }
    }

    fn listed(&self, address: Ipv4Addr, port: u16, names: &[HostName]) -> Result<Ground, Refusal> {
        let allow = &self.policy.allow;
        if allow.iter().any(|entry| entry.covers_address(address, port)) {
            return Ok(Ground::Address);
        }
        let mut listed = names.iter().filter(|name| self.name(name).is_ok()).peekable();
        if listed.peek().is_none() {
            return Err(Refusal::NotListed);
        }
        if !listed.any(|name| allow.iter().any(|entry| entry.covers_port_of_name(name, port))) {
            return Err(Refusal::PortNotListed);
        }
        Ok(if NAMED_PORTS.contains(&port) { Ground::Name } else { Ground::NameAndPort })
    }

    /// May a connection to `port` of an address go on, given what it shows and the `names` of that address?
    pub fn shown(&self, ground: Ground, port: u16, shown: Shown<'_>, names: &[HostName]) -> Result<(), Refusal> {
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
        let listed = self.policy.allow.iter().any(|entry| entry.covers_port_of_name(name, port));
        if listed || ground == Ground::Address { Ok(()) } else { Err(Refusal::PortNotListed) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PUBLIC: Ipv4Addr = Ipv4Addr::new(93, 184, 216, 34);

    fn rules(entries: &[&str]) -> Rules {
        let policy = Policy::allow(entries.iter().map(|text| text.parse().unwrap()));
        Rules { policy, ..Rules::default() }
    }

    fn names(texts: &[&str]) -> Vec<HostName> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn open() -> Rules {
        Rules { policy: Policy::of(Mode::Open), ..Rules::default() }
    }

    #[test]
    fn the_default_reaches_nothing() {
        let rules = Rules::default();
        assert_eq!(rules.name(&names(&["pypi.org"])[0]), Err(Refusal::PolicyDenies));
        assert_eq!(rules.address(PUBLIC, 443, &names(&["pypi.org"])), Err(Refusal::PolicyDenies));
    }

    #[test]
    fn an_address_is_allowed_by_the_names_it_was_resolved_for() {
        let rules = rules(&["example.com", "example.com:22"]);
        let own = names(&["example.com"]);
        assert_eq!(rules.address(PUBLIC, 443, &own), Ok(Ground::Name));
        assert_eq!(rules.address(PUBLIC, 22, &own), Ok(Ground::NameAndPort));
        assert_eq!(rules.address(PUBLIC, 25, &own), Err(Refusal::PortNotListed));
        assert_eq!(rules.address(PUBLIC, 443, &[]), Err(Refusal::NotListed));
        assert_eq!(rules.address(PUBLIC, 443, &names(&["other.com"])), Err(Refusal::NotListed));
    }

    #[test]
    fn a_shared_address_serves_only_the_listed_name() {
        let rules = rules(&["example.com"]);
        let pinned = names(&["example.com"]);
        let ground = rules.address(PUBLIC, 443, &pinned).unwrap();
        let shown = |name: &HostName| rules.shown(ground, 443, Shown::Name(name), &pinned);
        assert_eq!(shown(&pinned[0]), Ok(()));
        assert_eq!(shown(&names(&["evil.com"])[0]), Err(Refusal::NotListed));
        assert_eq!(rules.shown(ground, 443, Shown::Nameless, &pinned), Err(Refusal::NameMissing));
        assert_eq!(rules.shown(ground, 443, Shown::OtherProtocol, &pinned), Err(Refusal::OtherProtocol));
    }

    #[test]
    fn a_listed_name_is_not_shown_to_an_address_of_another() {
        let rules = rules(&["example.com", "other.com", "93.184.216.0/24"]);
        let pinned = names(&["example.com"]);
        for ground in [Ground::Name, Ground::Address] {
            let shown = rules.shown(ground, 443, Shown::Name(&names(&["other.com"])[0]), &pinned);
            assert_eq!(shown, Err(Refusal::NameNotPinned));
        }
    }

    #[test]
    fn a_resolved_address_serves_the_names_it_was_resolved_for_also_where_all_is_open() {
        let (rules, pinned) = (open(), names(&["example.com"]));
        let shown =
            |name: &str, pinned: &[HostName]| rules.shown(Ground::Open, 443, Shown::Name(&names(&[name])[0]), pinned);
        assert_eq!(shown("example.com", &pinned), Ok(()));
        assert_eq!(shown("other.com", &pinned), Err(Refusal::NameNotPinned));
        assert_eq!(shown("other.com", &[]), Ok(()), "an address from elsewhere");
        assert_eq!(shown("dns.google", &pinned), Err(Refusal::PublicResolver));
    }

    #[test]
    fn no_list_reaches_other_dns() {
        for port in [53, 853, 5353] {
            assert_eq!(rules(&["93.184.216.34:*"]).address(PUBLIC, port, &[]), Err(Refusal::OtherDnsServer));
        }
        assert_eq!(rules(&["dns.google"]).name(&names(&["dns.google"])[0]), Err(Refusal::PublicResolver));
        assert_eq!(rules(&["8.8.8.8"]).address(Ipv4Addr::new(8, 8, 8, 8), 443, &[]), Err(Refusal::PublicResolver));
        assert_eq!(open().name(&names(&["a.cloudflare-dns.com"])[0]), Err(Refusal::PublicResolver));
    }

    #[test]
    fn only_the_operator_opens_a_range() {
        let private = Ipv4Addr::new(10, 1, 2, 3);
        let mut rules = rules(&["10.0.0.0/8"]);
        assert_eq!(rules.address(private, 80, &[]), Err(Refusal::Range(Range::Private)));
        rules.opened = vec!["10.1.0.0/16".parse().unwrap()];
        assert_eq!(rules.address(private, 80, &[]), Ok(Ground::Address));
    }

    #[test]
    fn what_is_denied_is_reached_by_no_address_and_no_name() {
        let own = names(&["example.com"]);
        for mode in [Mode::Open, Mode::Learn, Mode::Allow] {
            let mut rules = rules(&["example.com", "93.184.0.0/16"]);
            rules.policy.mode = mode;
            rules.policy.deny = vec!["93.184.216.0/24:443".parse().unwrap()];
            assert_eq!(rules.address(PUBLIC, 443, &own), Err(Refusal::Denied), "{mode:?}");
            assert!(rules.address(PUBLIC, 80, &own).is_ok());
            assert!(rules.address(Ipv4Addr::new(93, 184, 217, 1), 443, &own).is_ok());
        }
    }

    #[test]
    fn a_policy_is_written_as_plain_text() {
        let text = r#"{"mode":"allow","allow":["pypi","*.example.com:8443","93.184.216.0/24"]}"#;
        let policy: Policy = serde_json::from_str(text).unwrap();
        assert_eq!(policy.allow.len(), 3);
        assert_eq!(serde_json::from_str::<Policy>(&serde_json::to_string(&policy).unwrap()).unwrap(), policy);
        assert!(serde_json::from_str::<Policy>(r#"{"mode":"allow","alow":[]}"#).is_err());
    }

    fn any_rules() -> impl Strategy<Value = Rules> {
        let entry = prop_oneof![
            "[ab]\\.com(:[1-9][0-9]?)?",
            "\\*\\.[ab]\\.com",
            (any::<u32>(), 0u8..=32).prop_map(|(bits, length)| format!("{}/{length}", Ipv4Addr::from(bits))),
        ];
        let mode = prop_oneof![Just(Mode::Deny), Just(Mode::Allow), Just(Mode::Open), Just(Mode::Learn)];
        (mode, prop::collection::vec(entry, 0..5)).prop_map(|(mode, entries)| {
            let allow = entries.iter().map(|text| text.parse().unwrap()).collect();
            Rules { policy: Policy { mode, allow, ..Policy::default() }, ..Rules::default() }
        })
    }

    proptest! {
        #[test]
        fn no_policy_of_a_client_leaves_the_public_internet(rules in any_rules(), bits: u32, port: u16) {
            let address = Ipv4Addr::from(bits);
            let answer = rules.address(address, port, &names(&["a.com", "b.com", "x.a.com"]));
            prop_assert!(Range::of_v4(address).is_none() || answer.is_err());
        }

        #[test]
        fn no_policy_of_a_client_reaches_the_host(mut rules in any_rules(), bits: u32, port: u16) {
            let address = Ipv4Addr::from(bits);
            rules.host = [address].into();
            prop_assert!(rules.address(address, port, &names(&["a.com", "b.com", "x.a.com"])).is_err());
        }

        #[test]
        fn deny_denies_everything(bits: u32, port: u16, name in "[a-z]{1,8}\\.com") {
            let rules = Rules::default();
            prop_assert!(rules.address(Ipv4Addr::from(bits), port, &names(&[&name])).is_err());
            prop_assert!(rules.name(&name.parse().unwrap()).is_err());
        }

        #[test]
        fn what_a_name_allows_ends_with_the_name(rules in any_rules(), port: u16, name in "([xy]\\.)?[abc]\\.com") {
            let pinned = names(&[&name]);
            prop_assume!(rules.policy.mode == Mode::Allow);
            if rules.name(&pinned[0]).is_err() {
                let with = rules.address(PUBLIC, port, &pinned);
                prop_assert_eq!(with.is_ok(), rules.address(PUBLIC, port, &[]).is_ok());
                prop_assert!(rules.shown(Ground::Name, port, Shown::Name(&pinned[0]), &pinned).is_err());
            }
        }

        #[test]
        fn a_longer_list_never_refuses_more(rules in any_rules(), extra in "[ab]\\.com", port: u16) {
            prop_assume!(rules.policy.mode == Mode::Allow);
            let pinned = names(&["a.com", "b.com"]);
            let before = rules.address(PUBLIC, port, &pinned).is_ok();
            let mut longer = rules;
            longer.policy.allow.push(extra.parse().unwrap());
            prop_assert!(!before || longer.address(PUBLIC, port, &pinned).is_ok());
        }
    }
}
