//! The two ends of the cable: who the guest is, and who the gateway is to it.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};
use smoltcp::wire::EthernetAddress;
use thiserror::Error;

/// An Ethernet address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MacAddress(pub [u8; 6]);

/// A text that is no Ethernet address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("an Ethernet address has six pairs of hexadecimal digits between colons")]
pub struct NotAMac;

/// The two ends of the cable. They are the same for every sandbox unless the engine says otherwise: each gateway has
/// one guest, so nothing has to be told to a guest that was restored or forked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
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

impl fmt::Display for MacAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(out, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

impl FromStr for MacAddress {
    type Err = NotAMac;

    fn from_str(text: &str) -> Result<MacAddress, NotAMac> {
        let mut bytes = [0; 6];
        let mut pairs = text.split(':');
        for byte in &mut bytes {
            let pair = pairs.next().filter(|pair| pair.len() == 2).ok_or(NotAMac)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| NotAMac)?;
        }
        if pairs.next().is_some() { Err(NotAMac) } else { Ok(MacAddress(bytes)) }
    }
}

impl TryFrom<String> for MacAddress {
    type Error = NotAMac;

    fn try_from(text: String) -> Result<MacAddress, NotAMac> {
        text.parse()
    }
}

impl From<MacAddress> for String {
    fn from(mac: MacAddress) -> String {
        mac.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_survives_its_text() {
        let mac = Ends::default().guest_mac;
        assert_eq!(mac.to_string().parse(), Ok(mac));
        for text in ["", "02:53:4c:00:00", "02:53:4c:00:00:02:03", "2:53:4c:00:00:02", "02:53:4c:00:00:zz"] {
            assert_eq!(text.parse::<MacAddress>(), Err(NotAMac), "{text}");
        }
    }
}
