//! Which datagrams may pass.

use std::net::Ipv4Addr;

use super::quic::is_quic;
use crate::name::HostName;
use crate::policy::{AllowedBy, NAMED_PORTS, Refusal, Rules};

/// Whether datagrams may go to `port` of `address`, given the `names` for which DNS returned it. The rules are those of
/// connections, except that a datagram never shows a name. On ports where a name is required, the only likely protocol
/// is QUIC.
pub fn address(rules: &Rules, address: Ipv4Addr, port: u16, names: &[HostName]) -> Result<AllowedBy, Refusal> {
    match rules.address(address, port, names)? {
        _ if NAMED_PORTS.contains(&port) => Err(Refusal::Quic),
        AllowedBy::Name => Err(Refusal::NameMissing),
        allowed_by @ (AllowedBy::Open | AllowedBy::Address | AllowedBy::NameAndPort) => Ok(allowed_by),
    }
}

/// Whether an exchange may start with this datagram.
pub fn first(data: &[u8]) -> Result<(), Refusal> {
    if is_quic(data) { Err(Refusal::Quic) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::policy::{Learned, Mode, Policy, Range, Shown};

    const PUBLIC: Ipv4Addr = Ipv4Addr::new(93, 184, 216, 34);

    fn rules(policy: Policy) -> Rules {
        Rules { policy, ..Rules::default() }
    }

    fn listed(entries: &[&str]) -> Rules {
        rules(Policy::allow(entries.iter().map(|text| text.parse().unwrap())))
    }

    fn names(texts: &[&str]) -> Vec<HostName> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn listed_destinations_are_allowed() {
        let own = names(&["example.com"]);
        assert_eq!(address(&listed(&["93.184.216.0/24"]), PUBLIC, 123, &[]), Ok(AllowedBy::Address));
        assert_eq!(address(&listed(&["example.com:123"]), PUBLIC, 123, &own), Ok(AllowedBy::NameAndPort));
        assert_eq!(address(&rules(Policy::of(Mode::Open)), PUBLIC, 123, &[]), Ok(AllowedBy::Open));
    }

    #[test]
    fn unlisted_destinations_are_refused() {
        let own = names(&["example.com"]);
        assert_eq!(address(&listed(&["example.com:123"]), PUBLIC, 123, &[]), Err(Refusal::NotListed), "not resolved");
        assert_eq!(address(&listed(&["example.com"]), PUBLIC, 123, &own), Err(Refusal::PortNotListed));
        assert_eq!(address(&listed(&["93.184.216.34:124"]), PUBLIC, 123, &[]), Err(Refusal::NotListed));
        assert_eq!(address(&rules(Policy::default()), PUBLIC, 123, &own), Err(Refusal::PolicyDenies));
        let open = rules(Policy::of(Mode::Open));
        assert_eq!(address(&open, Ipv4Addr::new(10, 0, 0, 1), 123, &[]), Err(Refusal::Range(Range::Private)));
        for port in [53, 853, 5353, 8853] {
            assert_eq!(address(&open, PUBLIC, port, &[]), Err(Refusal::OtherDnsServer));
        }
        assert_eq!(address(&open, Ipv4Addr::new(8, 8, 8, 8), 123, &[]), Err(Refusal::PublicResolver));
    }

    #[test]
    fn quic_is_refused_by_port_and_by_content() {
        let own = names(&["example.com"]);
        for rules in
            [rules(Policy::of(Mode::Open)), listed(&["93.184.216.34"]), listed(&["example.com", "example.com:*"])]
        {
            for port in [80, 443] {
                assert_eq!(address(&rules, PUBLIC, port, &own), Err(Refusal::Quic));
            }
            assert!(address(&rules, PUBLIC, 8443, &own).is_ok());
        }
        assert_eq!(first(b"\xc3\0\0\0\x01 and so on"), Err(Refusal::Quic));
        assert_eq!(first(b"hello"), Ok(()));
    }

    proptest! {
        #[test]
        fn datagrams_pass_only_where_connections_may(bits: u32, port: u16, mode in 0usize..3, entry in "[ab]\\.com(:[1-9][0-9]?)?") {
            let mode = [Mode::Deny, Mode::Allow, Mode::Open][mode];
            let rules = rules(Policy { mode, ..Policy::allow([entry.parse().unwrap()]) });
            let (to, pinned) = (Ipv4Addr::from(bits), names(&["a.com"]));
            if let Ok(allowed_by) = address(&rules, to, port, &pinned) {
                prop_assert_eq!(rules.address(to, port, &pinned), Ok(allowed_by));
                prop_assert!(rules.shown(to, port, Shown::OtherProtocol, &pinned).is_ok());
            }
        }

        #[test]
        fn learned_destinations_are_allowed(port: u16, pinned in prop::collection::vec("[a-c]\\.com", 0..3)) {
            let pinned: Vec<HostName> = pinned.iter().map(|name| name.parse().unwrap()).collect();
            prop_assume!(address(&rules(Policy::of(Mode::Learn)), PUBLIC, port, &pinned).is_ok());
            let mut learned = Learned::default();
            learned.connection(PUBLIC, port, Shown::OtherProtocol, &pinned);
            prop_assert!(address(&rules(learned.policy()), PUBLIC, port, &pinned).is_ok());
        }
    }
}
