//! Public DNS resolvers. A guest that reaches one can resolve any name, and leak data through it.
//!
//! The list holds the resolvers that clients commonly use. It cannot be complete: anybody can run a resolver behind an
//! allowed name. With an allow-list only listed names can be reached anyway, so the list matters for mode `open`.

use std::net::Ipv4Addr;

use crate::name::HostName;

/// The ports of DNS: plain, over TLS, multicast, and the one that older resolvers use for HTTPS.
const DNS_PORTS: [u16; 4] = [53, 853, 5353, 8853];

/// Names of resolvers over HTTPS. Their subdomains are included.
const NAMES: [&str; 24] = [
    "dns.google",
    "dns.google.com",
    "dns64.dns.google",
    "8888.google",
    "cloudflare-dns.com",
    "one.one.one.one",
    "dns.cloudflare.com",
    "cloudflare-gateway.com",
    "dns.quad9.net",
    "dns9.quad9.net",
    "dns10.quad9.net",
    "dns11.quad9.net",
    "doh.opendns.com",
    "doh.umbrella.com",
    "dns.umbrella.com",
    "dns.nextdns.io",
    "dns.adguard.com",
    "dns.adguard-dns.com",
    "doh.cleanbrowsing.org",
    "dns.controld.com",
    "doh.dns.sb",
    "dns.mullvad.net",
    "dns.alidns.com",
    "doh.pub",
];

/// Addresses of the same resolvers, as /24 networks.
const NETWORKS: [[u8; 3]; 20] = [
    [1, 0, 0],
    [1, 1, 1],
    [8, 8, 4],
    [8, 8, 8],
    [9, 9, 9],
    [149, 112, 112],
    [208, 67, 220],
    [208, 67, 222],
    [45, 90, 28],
    [45, 90, 30],
    [94, 140, 14],
    [94, 140, 15],
    [185, 228, 168],
    [185, 228, 169],
    [76, 76, 2],
    [76, 76, 10],
    [185, 222, 222],
    [194, 242, 2],
    [223, 5, 5],
    [223, 6, 6],
];

/// Whether `port` is a DNS port.
pub fn is_dns_port(port: u16) -> bool {
    DNS_PORTS.contains(&port)
}

/// Whether `name` belongs to a known resolver.
pub fn is_resolver_name(name: &HostName) -> bool {
    NAMES.iter().any(|known| name.is_or_is_below(known))
}

/// Whether `address` belongs to a known resolver.
pub fn is_resolver_address(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    NETWORKS.contains(&[a, b, c])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolvers_are_recognized_by_name_and_by_address() {
        for name in ["dns.google", "mozilla.cloudflare-dns.com", "abc123.dns.nextdns.io", "DNS.Quad9.net"] {
            assert!(is_resolver_name(&name.parse().unwrap()), "{name}");
        }
        for name in ["google", "google.com", "notdns.google", "pypi.org"] {
            assert!(!is_resolver_name(&name.parse().unwrap()), "{name}");
        }
        assert!(is_resolver_address(Ipv4Addr::new(1, 1, 1, 1)));
        assert!(!is_resolver_address(Ipv4Addr::new(93, 184, 216, 34)));
    }
}
