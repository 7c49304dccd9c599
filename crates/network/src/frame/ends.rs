//! The addresses of both ends of the cable: the guest and the gateway.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use smoltcp::wire::EthernetAddress;

/// An Ethernet address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MacAddress(pub [u8; 6]);

/// The addresses of both ends of the cable. All sandboxes use the same ones by default. Each gateway serves one guest,
/// so a restored or forked guest needs no new addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    pub guest_mac: MacAddress,
    pub guest_address: Ipv4Addr,
    pub gateway_mac: MacAddress,
    pub gateway_address: Ipv4Addr,
    /// The prefix length of the network.
    pub prefix_length: u8,
    /// Addresses for the peers in a group. They are outside the network above, so that the guest routes them to the
    /// gateway.
    pub peer_network: Ipv4Net,
    /// The largest IP packet, in bytes. The guest may use a smaller one.
    pub mtu: u16,
}

impl Default for Ends {
    fn default() -> Ends {
        Ends {
            guest_mac: MacAddress([0x02, 0x53, 0x4c, 0, 0, 2]),
            guest_address: Ipv4Addr::new(10, 83, 76, 2),
            gateway_mac: MacAddress([0x02, 0x53, 0x4c, 0, 0, 1]),
            gateway_address: Ipv4Addr::new(10, 83, 76, 1),
            prefix_length: 24,
            peer_network: Ipv4Net::new_assert(Ipv4Addr::new(10, 83, 77, 0), 24),
            mtu: 16_000,
        }
    }
}

impl Ends {
    /// The valid range of `mtu`: from IPv4's minimum to the size of QEMU's buffers.
    pub const MTU: std::ops::RangeInclusive<u16> = 576..=65_000;

    /// The network that both ends are in.
    pub fn network(&self) -> Ipv4Net {
        Ipv4Net::new(self.gateway_address, self.prefix_length.min(32))
            .unwrap_or(Ipv4Net::from(self.gateway_address))
            .trunc()
    }

    pub(super) fn guest(&self) -> EthernetAddress {
        EthernetAddress(self.guest_mac.0)
    }

    pub(super) fn gateway(&self) -> EthernetAddress {
        EthernetAddress(self.gateway_mac.0)
    }
}
