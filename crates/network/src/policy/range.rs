//! Address ranges that no client's policy can open: everything outside the public internet.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

/// The kind of an address outside the public internet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Range {
    /// Where a cloud gives a machine its credentials.
    Metadata,
    Loopback,
    Private,
    LinkLocal,
    /// Carrier-grade NAT, 100.64.0.0/10.
    SharedByCarriers,
    Multicast,
    Broadcast,
    /// For examples in documents.
    Documentation,
    /// For benchmarks, protocol assignments and future use.
    Reserved,
    /// Any IPv6 address. The gateway supports none.
    Ipv6,
    /// An address of the host, of any kind.
    Host,
}

/// The metadata endpoints of clouds: AWS, Google and Azure; AWS containers; Alibaba; Oracle; Azure's wire server. Some
/// are inside other ranges.
const METADATA: [Ipv4Addr; 5] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(169, 254, 170, 2),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
    Ipv4Addr::new(168, 63, 129, 16),
];

/// IANA's special-purpose registry, mapped to our kinds.
const SPECIAL: [([u8; 4], u8, Range); 17] = [
    ([0, 0, 0, 0], 8, Range::Reserved),
    ([10, 0, 0, 0], 8, Range::Private),
    ([100, 64, 0, 0], 10, Range::SharedByCarriers),
    ([127, 0, 0, 0], 8, Range::Loopback),
    ([169, 254, 0, 0], 16, Range::LinkLocal),
    ([172, 16, 0, 0], 12, Range::Private),
    ([192, 0, 0, 0], 24, Range::Reserved),
    ([192, 0, 2, 0], 24, Range::Documentation),
    ([192, 31, 196, 0], 24, Range::Reserved),
    ([192, 52, 193, 0], 24, Range::Reserved),
    ([192, 88, 99, 0], 24, Range::Reserved),
    ([192, 168, 0, 0], 16, Range::Private),
    ([198, 18, 0, 0], 15, Range::Reserved),
    ([198, 51, 100, 0], 24, Range::Documentation),
    ([203, 0, 113, 0], 24, Range::Documentation),
    ([224, 0, 0, 0], 4, Range::Multicast),
    ([240, 0, 0, 0], 4, Range::Reserved),
];

impl Range {
    /// The range that `address` is in. None if it is on the public internet.
    pub fn of(address: IpAddr) -> Option<Range> {
        match address {
            IpAddr::V4(address) => Range::of_v4(address),
            IpAddr::V6(address) => Some(disguised(address).and_then(Range::of_v4).unwrap_or(Range::Ipv6)),
        }
    }

    /// The range that an IPv4 address is in.
    pub fn of_v4(address: Ipv4Addr) -> Option<Range> {
        if METADATA.contains(&address) {
            return Some(Range::Metadata);
        }
        if address.is_broadcast() {
            return Some(Range::Broadcast);
        }
        SPECIAL.iter().find(|(net, length, _)| contains(*net, *length, address)).map(|(_, _, range)| *range)
    }

    /// The range that refuses `address`, given the networks that the operator opened and the addresses of the `host`. A
    /// metadata address or an address of the host must be opened individually, because opening a whole range could
    /// include it by mistake.
    pub fn refusing(address: Ipv4Addr, opened: &[Ipv4Net], host: &[Ipv4Addr]) -> Option<Range> {
        let range = match Range::of_v4(address) {
            Some(Range::Metadata) => Range::Metadata,
            _ if host.contains(&address) => Range::Host,
            range => range?,
        };
        let alone = matches!(range, Range::Metadata | Range::Host);
        let open = opened.iter().any(|net| net.contains(&address) && (!alone || net.prefix_len() == 32));
        (!open).then_some(range)
    }
}

fn contains(net: [u8; 4], length: u8, address: Ipv4Addr) -> bool {
    let shift = 32 - u32::from(length);
    u32::from_be_bytes(net) >> shift == u32::from(address) >> shift
}

/// The IPv4 address that an IPv6 address embeds: mapped, compatible, NAT64, 6to4, Teredo or ISATAP.
pub fn disguised(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let s = address.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match s {
        [0, 0, 0, 0, 0, 0xffff, high, low] => Some(v4(high, low)),
        [0, 0, 0, 0, 0xffff, 0, high, low] => Some(v4(high, low)),
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 => Some(v4(high, low)),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(v4(high, low)),
        [0x64, 0xff9b, 1, _, _, _, high, low] => Some(v4(high, low)),
        [0x2002, high, low, ..] => Some(v4(high, low)),
        [0x2001, 0, .., high, low] => Some(v4(!high, !low)),
        [.., 0 | 0x200, 0x5efe, high, low] => Some(v4(high, low)),
        _ => None,
    }
}

impl fmt::Display for Range {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Range::Metadata => "a cloud's metadata address",
            Range::Loopback => "a loopback address",
            Range::Private => "a private address",
            Range::LinkLocal => "a link-local address",
            Range::SharedByCarriers => "a carrier's shared address",
            Range::Multicast => "a multicast address",
            Range::Broadcast => "a broadcast address",
            Range::Documentation => "a documentation address",
            Range::Reserved => "a reserved address",
            Range::Ipv6 => "an IPv6 address",
            Range::Host => "an address of the host itself",
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn v4(text: &str) -> Ipv4Addr {
        text.parse().unwrap()
    }

    #[test]
    fn all_metadata_addresses_are_known() {
        for text in ["169.254.169.254", "169.254.170.2", "100.100.100.200", "192.0.0.192", "168.63.129.16"] {
            assert_eq!(Range::of_v4(v4(text)), Some(Range::Metadata), "{text}");
        }
    }

    #[test]
    fn range_boundaries_are_exact() {
        for (first, last) in [
            ("0.0.0.0", "0.255.255.255"),
            ("10.0.0.0", "10.255.255.255"),
            ("100.64.0.0", "100.127.255.255"),
            ("127.0.0.0", "127.255.255.255"),
            ("169.254.0.0", "169.254.255.255"),
            ("172.16.0.0", "172.31.255.255"),
            ("192.168.0.0", "192.168.255.255"),
            ("198.18.0.0", "198.19.255.255"),
            ("224.0.0.0", "255.255.255.255"),
        ] {
            let (first, last) = (u32::from(v4(first)), u32::from(v4(last)));
            for inside in [first, last] {
                assert!(Range::of_v4(inside.into()).is_some(), "{}", Ipv4Addr::from(inside));
            }
            for outside in [first.checked_sub(1), last.checked_add(1)].into_iter().flatten() {
                assert_eq!(Range::of_v4(outside.into()), None, "{}", Ipv4Addr::from(outside));
            }
        }
    }

    #[test]
    fn ipv6_disguises_are_seen_through() {
        for text in [
            "::ffff:169.254.169.254",
            "::169.254.169.254",
            "::ffff:0:169.254.169.254",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::169.254.169.254",
            "2002:a9fe:a9fe::1",
            "2001:0:1:2:3:4:5601:5601",
            "fe80::5efe:169.254.169.254",
            "2a00::200:5efe:169.254.169.254",
        ] {
            assert_eq!(Range::of(text.parse().unwrap()), Some(Range::Metadata), "{text}");
        }
        assert_eq!(Range::of("fd00:ec2::254".parse().unwrap()), Some(Range::Ipv6));
        assert_eq!(Range::of("::1".parse().unwrap()), Some(Range::Ipv6));
        assert_eq!(
            Range::of("::ffff:1.1.1.1".parse().unwrap()),
            Some(Range::Ipv6),
            "public inside is IPv6 all the same"
        );
    }

    #[test]
    fn opening_a_range_does_not_open_its_metadata_address() {
        let all: Ipv4Net = "0.0.0.0/0".parse().unwrap();
        assert_eq!(Range::refusing(v4("169.254.1.1"), &[all], &[]), None);
        assert_eq!(Range::refusing(v4("169.254.169.254"), &[all], &[]), Some(Range::Metadata));
        assert_eq!(Range::refusing(v4("169.254.169.254"), &["169.254.169.254/32".parse().unwrap()], &[]), None);
    }

    #[test]
    fn the_hosts_addresses_must_be_opened_individually() {
        for own in ["45.33.32.156", "10.1.2.3"].map(v4) {
            assert_eq!(Range::refusing(own, &[], &[own]), Some(Range::Host));
            assert_eq!(Range::refusing(own, &["0.0.0.0/0".parse().unwrap()], &[own]), Some(Range::Host));
            assert_eq!(Range::refusing(own, &[Ipv4Net::from(own)], &[own]), None);
        }
        assert_eq!(Range::refusing(v4("45.33.32.157"), &[], &[v4("45.33.32.156")]), None);
    }

    proptest! {
        #[test]
        fn agrees_with_the_standard_library(bits: u32) {
            let address = Ipv4Addr::from(bits);
            let special = address.is_private() || address.is_loopback() || address.is_link_local()
                || address.is_multicast() || address.is_broadcast() || address.is_documentation()
                || address.is_unspecified();
            prop_assert!(!special || Range::of_v4(address).is_some());
        }

        #[test]
        fn every_ipv6_address_is_refused(bits: u128) {
            prop_assert!(Range::of(IpAddr::V6(Ipv6Addr::from(bits))).is_some());
        }
    }
}
