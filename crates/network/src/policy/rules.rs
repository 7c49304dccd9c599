//! Combines all checks: address ranges, the sandbox's policy, and the workspace's policy if it binds.

use std::net::Ipv4Addr;
use std::sync::Arc;

use ipnet::Ipv4Net;

use super::decide::{AllowedBy, Policy, Shown, TlsMode};
use super::range::Range;
use super::refusal::Refusal;
use crate::name::HostName;

/// A policy, the workspace's policy, the networks that the operator opened, and the host's addresses.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    pub policy: Policy,
    /// The workspace's policy, if it binds. The sandbox's policy can only narrow it.
    pub bound: Option<Policy>,
    /// Networks outside the public internet that the operator opened.
    pub opened: Vec<Ipv4Net>,
    /// The host's own addresses, including public ones.
    pub host: Arc<[Ipv4Addr]>,
}

impl Rules {
    /// Whether `name` may be resolved.
    pub fn name(&self, name: &HostName) -> Result<(), Refusal> {
        self.both(|policy| policy.name(name)).map(drop)
    }

    /// The range that refuses `address`, regardless of the policy.
    pub fn refusing(&self, address: Ipv4Addr) -> Option<Range> {
        Range::refusing(address, &self.opened, &self.host)
    }

    /// Whether `port` of `address` may be connected to, given the `names` that DNS returned it for. If both policies
    /// allow it, the result is the narrower reason.
    pub fn address(&self, address: Ipv4Addr, port: u16, names: &[HostName]) -> Result<AllowedBy, Refusal> {
        self.in_range(address)?;
        let (own, bound) = self.both(|policy| policy.address(address, port, names))?;
        Ok(bound.map_or(own, |bound| own.max(bound)))
    }

    /// Whether a connection to `port` of `address` may go on, given what it shows and the `names` of that address. Each
    /// policy judges by its own reason.
    pub fn shown(&self, address: Ipv4Addr, port: u16, shown: Shown<'_>, names: &[HostName]) -> Result<(), Refusal> {
        self.in_range(address)?;
        self.both(|policy| policy.shown(policy.address(address, port, names)?, port, shown, names)).map(drop)
    }

    /// Whether every TLS connection must be intercepted.
    pub fn inspects(&self) -> bool {
        self.bound.iter().chain([&self.policy]).any(|policy| policy.tls == TlsMode::Inspected)
    }

    fn in_range(&self, address: Ipv4Addr) -> Result<(), Refusal> {
        self.refusing(address).map_or(Ok(()), |range| Err(Refusal::Range(range)))
    }

    /// The results of the policy and of the workspace's policy, if it binds. Both must allow.
    fn both<T>(&self, judge: impl Fn(&Policy) -> Result<T, Refusal>) -> Result<(T, Option<T>), Refusal> {
        let own = judge(&self.policy)?;
        let bound = self.bound.as_ref().map(judge).transpose().map_err(|_| Refusal::WorkspacePolicy)?;
        Ok((own, bound))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::decide::Mode;
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
    fn the_default_allows_nothing() {
        let rules = Rules::default();
        assert_eq!(rules.name(&names(&["pypi.org"])[0]), Err(Refusal::PolicyDenies));
        assert_eq!(rules.address(PUBLIC, 443, &names(&["pypi.org"])), Err(Refusal::PolicyDenies));
    }

    #[test]
    fn an_address_is_allowed_by_the_names_it_was_resolved_for() {
        let rules = rules(&["example.com", "example.com:22"]);
        let own = names(&["example.com"]);
        assert_eq!(rules.address(PUBLIC, 443, &own), Ok(AllowedBy::Name));
        assert_eq!(rules.address(PUBLIC, 22, &own), Ok(AllowedBy::NameAndPort));
        assert_eq!(rules.address(PUBLIC, 25, &own), Err(Refusal::PortNotListed));
        assert_eq!(rules.address(PUBLIC, 443, &[]), Err(Refusal::NotListed));
        assert_eq!(rules.address(PUBLIC, 443, &names(&["other.com"])), Err(Refusal::NotListed));
    }

    #[test]
    fn a_shared_address_serves_only_the_listed_name() {
        let rules = rules(&["example.com"]);
        let (pinned, evil) = (names(&["example.com"]), names(&["evil.com"]));
        let shown = |shown| rules.shown(PUBLIC, 443, shown, &pinned);
        assert_eq!(shown(Shown::Name(&pinned[0])), Ok(()));
        assert_eq!(shown(Shown::Name(&evil[0])), Err(Refusal::NotListed));
        assert_eq!(shown(Shown::Nameless), Err(Refusal::NameMissing));
        assert_eq!(shown(Shown::OtherProtocol), Err(Refusal::OtherProtocol));
    }

    #[test]
    fn a_listed_name_must_belong_to_the_address() {
        let pinned = names(&["example.com"]);
        for entries in [&["example.com", "other.com"][..], &["example.com", "other.com", "93.184.216.0/24"]] {
            let shown = rules(entries).shown(PUBLIC, 443, Shown::Name(&names(&["other.com"])[0]), &pinned);
            assert_eq!(shown, Err(Refusal::NameNotPinned));
        }
    }

    #[test]
    fn in_mode_open_a_resolved_address_serves_its_own_names_only() {
        let (rules, pinned) = (open(), names(&["example.com"]));
        let shown = |name: &str, pinned: &[HostName]| rules.shown(PUBLIC, 443, Shown::Name(&names(&[name])[0]), pinned);
        assert_eq!(shown("example.com", &pinned), Ok(()));
        assert_eq!(shown("other.com", &pinned), Err(Refusal::NameNotPinned));
        assert_eq!(shown("other.com", &[]), Ok(()), "an address from elsewhere");
        assert_eq!(shown("dns.google", &pinned), Err(Refusal::PublicResolver));
    }

    #[test]
    fn no_list_can_allow_other_dns_servers() {
        for port in [53, 853, 5353] {
            assert_eq!(rules(&["93.184.216.34:*"]).address(PUBLIC, port, &[]), Err(Refusal::OtherDnsServer));
        }
        assert_eq!(rules(&["dns.google"]).name(&names(&["dns.google"])[0]), Err(Refusal::PublicResolver));
        assert_eq!(rules(&["8.8.8.8"]).address(Ipv4Addr::new(8, 8, 8, 8), 443, &[]), Err(Refusal::PublicResolver));
        assert_eq!(open().name(&names(&["a.cloudflare-dns.com"])[0]), Err(Refusal::PublicResolver));
    }

    #[test]
    fn only_the_operator_can_open_a_range() {
        let private = Ipv4Addr::new(10, 1, 2, 3);
        let mut rules = rules(&["10.0.0.0/8"]);
        assert_eq!(rules.address(private, 80, &[]), Err(Refusal::Range(Range::Private)));
        rules.opened = vec!["10.1.0.0/16".parse().unwrap()];
        assert_eq!(rules.address(private, 80, &[]), Ok(AllowedBy::Address));
    }

    #[test]
    fn denied_addresses_are_refused_in_every_mode() {
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

    fn bound(own: Policy, bound: Policy) -> Rules {
        Rules { policy: own, bound: Some(bound), ..Rules::default() }
    }

    #[test]
    fn a_binding_policy_can_be_narrowed_and_not_widened() {
        let (listed, pinned) = (rules(&["example.com", "example.com:22"]).policy, names(&["example.com"]));
        let other = names(&["other.com"]);
        let wide = bound(Policy::of(Mode::Open), listed.clone());
        assert_eq!(wide.name(&pinned[0]), Ok(()));
        assert_eq!(wide.name(&other[0]), Err(Refusal::WorkspacePolicy));
        assert_eq!(wide.address(PUBLIC, 443, &pinned), Ok(AllowedBy::Name), "the narrower reason");
        assert_eq!(wide.address(PUBLIC, 22, &pinned), Ok(AllowedBy::NameAndPort));
        assert_eq!(wide.address(PUBLIC, 443, &other), Err(Refusal::WorkspacePolicy));
        let shown = |shown| wide.shown(PUBLIC, 443, shown, &pinned);
        assert_eq!(shown(Shown::Name(&pinned[0])), Ok(()));
        assert_eq!(shown(Shown::Name(&other[0])), Err(Refusal::NameNotPinned), "its own policy is asked first");
        for nameless in [Shown::Nameless, Shown::OtherProtocol] {
            assert_eq!(shown(nameless), Err(Refusal::WorkspacePolicy));
        }
        let narrow = bound(rules(&["example.com:22"]).policy, listed.clone());
        assert_eq!(narrow.address(PUBLIC, 443, &pinned), Err(Refusal::PortNotListed));
        assert_eq!(bound(Policy::default(), listed.clone()).name(&pinned[0]), Err(Refusal::PolicyDenies));
        assert_eq!(bound(listed, Policy::default()).name(&pinned[0]), Err(Refusal::WorkspacePolicy));
    }

    #[test]
    fn either_policy_can_require_interception() {
        let inspected = || Policy { tls: TlsMode::Inspected, ..Policy::default() };
        assert!(!bound(Policy::default(), Policy::default()).inspects());
        assert!(bound(Policy::default(), inspected()).inspects());
        assert!(bound(inspected(), Policy::default()).inspects());
    }

    fn any_shown(names: &[HostName], which: usize) -> Shown<'_> {
        let others = [Shown::Nameless, Shown::OtherProtocol];
        names.iter().map(Shown::Name).chain(others).nth(which).unwrap()
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
        fn an_unlisted_name_allows_nothing(rules in any_rules(), port: u16, name in "([xy]\\.)?[abc]\\.com") {
            let pinned = names(&[&name]);
            prop_assume!(rules.policy.mode == Mode::Allow);
            if rules.name(&pinned[0]).is_err() {
                let with = rules.address(PUBLIC, port, &pinned);
                prop_assert_eq!(with.is_ok(), rules.address(PUBLIC, port, &[]).is_ok());
                prop_assert!(rules.shown(PUBLIC, port, Shown::Name(&pinned[0]), &pinned).is_err());
            }
        }

        #[test]
        fn a_destination_is_allowed_if_and_only_if_both_policies_allow_it(
            own in any_rules(), most in any_rules(), inside in prop::bool::ANY, bits: u32, port in 1u16..500,
            pinned in prop::collection::vec("([xy]\\.)?[abc]\\.com", 0..3), which in 0usize..5,
        ) {
            let address = if inside { PUBLIC } else { Ipv4Addr::from(bits) };
            let (pinned, every) = (names(&pinned.iter().map(String::as_str).collect::<Vec<_>>()), names(&["a.com", "x.b.com", "c.com"]));
            let shown = any_shown(&every, which);
            let both = bound(own.policy.clone(), most.policy.clone());
            for name in &every {
                prop_assert_eq!(both.name(name).is_ok(), own.name(name).is_ok() && most.name(name).is_ok());
            }
            let (one, other) = (own.address(address, port, &pinned), most.address(address, port, &pinned));
            let expected = one.ok().zip(other.ok()).map(|(one, other)| one.max(other));
            prop_assert_eq!(both.address(address, port, &pinned).ok(), expected);
            let alone = |rules: &Rules| rules.shown(address, port, shown, &pinned).is_ok();
            prop_assert_eq!(alone(&both), alone(&own) && alone(&most));
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
