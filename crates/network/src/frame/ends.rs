//! The two ends of the cable: who the guest is, and who the gateway is to it.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use smoltcp::wire::EthernetAddress;

/// An Ethernet address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MacAddress(pub [u8; 6]);

/// The two ends of the cable. They are the same for every sandbox unless the engine says otherwise: each gateway has
/// one guest, so nothing has to be told to a guest that was restored or forked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    pub guest_mac: MacAddress,
    pub guest_address: Ipv4Addr,
    pub gateway_mac: MacAddress,
    pub gateway_address: Ipv4Addr,
    /// How many bits of the addresses name the network.
    pub prefix_length: u8,
    /// Addresses that stand for peers of the same group, outside the network above so that they are routed here.
    pub peer_network: Ipv4Net,
    /// The largest IP packet, in bytes. The guest may set a smaller one on its card.
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
    /// The smallest and largest packet that `mtu` may name: IPv4's own minimum, and what QEMU's buffers hold.
    pub const MTU: std::ops::RangeInclusive<u16> = 576..=65_000;

    /// The network both ends are in.
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
