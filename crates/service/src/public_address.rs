//! Which addresses are on the public internet, for connections that the server opens for a tenant.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::Ipv4Net;
use sandling_network::policy::{Range, disguised};

/// The special range of an address; `None` if it counts as public. `opened` are private networks that the operator treats
/// as public,
/// and `host` are addresses of the host itself that are refused.
pub(crate) fn range(address: IpAddr, opened: &[Ipv4Net], host: &[Ipv4Addr]) -> Option<Range> {
    match address {
        IpAddr::V4(address) => Range::refusing(address, opened, host),
        IpAddr::V6(Ipv6Addr::LOCALHOST) => Some(Range::Loopback),
        IpAddr::V6(address) => match disguised(address) {
            Some(address) => Range::refusing(address, opened, host),
            // Global unicast, without the range for documentation.
            None if address.segments()[0] & 0xe000 == 0x2000 && address.segments()[..2] != [0x2001, 0xdb8] => None,
            None => Some(Range::Ipv6),
        },
    }
}
