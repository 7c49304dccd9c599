//! Parses a frame of the guest.
//!
//! The guest has one Ethernet address and one IPv4 address. The parser drops a frame that claims another sender, is
//! damaged, too large or fragmented, or carries IP options.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol, Icmpv4Packet, Icmpv4Repr,
    IpProtocol, Ipv4Packet, TcpPacket, UdpPacket,
};

use super::ends::Ends;
use super::write::ETHERNET_HEADER;
use crate::flow::Flow;
use crate::policy::Refusal;

const IPV4_HEADER: u8 = 20;
const DHCP_SERVER: u16 = 67;
const DHCP_CLIENT: u16 = 68;
const DNS: u16 = 53;

/// The content of a frame.
#[derive(Debug, PartialEq, Eq)]
pub enum Inbound<'a> {
    /// An ARP request for the gateway's address.
    WhoIsGateway,
    /// A DHCP message, without its headers.
    Dhcp(&'a [u8]),
    /// A DNS message to the gateway, without its headers.
    Dns { from_port: u16, message: &'a [u8] },
    /// A ping to the gateway.
    Echo { ident: u16, sequence: u16, data: &'a [u8] },
    /// A TCP segment, with its IPv4 header. Its checksum is not yet verified.
    Tcp { segment: Segment, packet: &'a [u8] },
    /// A UDP datagram.
    Udp(Datagram<'a>),
    /// A packet that is never forwarded. `packet` is the IPv4 packet, if the guest gets an ICMP error.
    Refused { to: IpAddr, why: Refusal, packet: Option<&'a [u8]> },
    /// Background traffic of a new network, such as neighbor discovery and multicast joins. It is ignored.
    Chatter,
    /// A frame that is not accepted.
    Dropped(Dropped),
}

/// Why a frame is dropped without a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dropped {
    Malformed,
    Oversized,
    Fragment,
    Spoofed,
}

/// The addresses and the flags of a TCP segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    pub from_port: u16,
    pub to: Ipv4Addr,
    pub to_port: u16,
    /// Opens a new connection: SYN and no other flag.
    pub opens: bool,
    pub resets: bool,
}

/// A datagram and its addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram<'a> {
    pub from_port: u16,
    pub to: Ipv4Addr,
    pub to_port: u16,
    pub data: &'a [u8],
    /// The whole packet, with its IPv4 header.
    pub packet: &'a [u8],
}

impl From<&Segment> for Flow {
    fn from(segment: &Segment) -> Flow {
        Flow { guest_port: segment.from_port, address: segment.to, port: segment.to_port }
    }
}

impl From<&Datagram<'_>> for Flow {
    fn from(datagram: &Datagram<'_>) -> Flow {
        Flow { guest_port: datagram.from_port, address: datagram.to, port: datagram.to_port }
    }
}

/// Parses a frame that the guest sent.
pub fn read<'a>(ends: &Ends, bytes: &'a [u8]) -> Inbound<'a> {
    if bytes.len() > usize::from(ends.mtu) + ETHERNET_HEADER {
        return Inbound::Dropped(Dropped::Oversized);
    }
    let Ok(frame) = EthernetFrame::new_checked(bytes) else {
        return Inbound::Dropped(Dropped::Malformed);
    };
    if frame.src_addr() != ends.guest() {
        return Inbound::Dropped(Dropped::Spoofed);
    }
    let to = frame.dst_addr();
    match frame.ethertype() {
        EthernetProtocol::Arp => arp(ends, frame.payload()),
        EthernetProtocol::Ipv4 if to == ends.gateway() || to == EthernetAddress::BROADCAST => {
            ipv4(ends, frame.payload())
        }
        EthernetProtocol::Ipv6 => ipv6(to, frame.payload()),
        _ => Inbound::Chatter,
    }
}

fn arp<'a>(ends: &Ends, payload: &[u8]) -> Inbound<'a> {
    let Ok(repr) = ArpPacket::new_checked(payload).and_then(|packet| ArpRepr::parse(&packet)) else {
        return Inbound::Dropped(Dropped::Malformed);
    };
    let ArpRepr::EthernetIpv4 { operation, source_hardware_addr, source_protocol_addr, target_protocol_addr, .. } =
        repr
    else {
        return Inbound::Dropped(Dropped::Malformed);
    };
    let own = source_protocol_addr == ends.guest_address || source_protocol_addr.is_unspecified();
    if source_hardware_addr != ends.guest() || !own {
        return Inbound::Dropped(Dropped::Spoofed);
    }
    match operation {
        ArpOperation::Request if target_protocol_addr == ends.gateway_address => Inbound::WhoIsGateway,
        _ => Inbound::Chatter,
    }
}

fn ipv4<'a>(ends: &Ends, payload: &'a [u8]) -> Inbound<'a> {
    let Ok(packet) = Ipv4Packet::new_checked(payload) else {
        return Inbound::Dropped(Dropped::Malformed);
    };
    if packet.version() != 4 || packet.header_len() != IPV4_HEADER || !packet.verify_checksum() {
        return Inbound::Dropped(Dropped::Malformed);
    }
    if packet.more_frags() || packet.frag_offset() != 0 {
        return Inbound::Dropped(Dropped::Fragment);
    }
    let whole = &payload[..usize::from(packet.total_len())];
    let from = packet.src_addr();
    if from.is_unspecified() && packet.next_header() == IpProtocol::Udp {
        return unconfigured(&packet);
    }
    if from != ends.guest_address {
        return Inbound::Dropped(Dropped::Spoofed);
    }
    match packet.next_header() {
        IpProtocol::Tcp => tcp(&packet, whole),
        IpProtocol::Udp => datagram(ends, &packet, whole),
        IpProtocol::Icmp => icmp(ends, &packet, whole),
        _ => refused(&packet, Refusal::IpProtocol, whole),
    }
}

/// A guest without an address may use DHCP, and nothing else.
fn unconfigured<'a>(packet: &Ipv4Packet<&'a [u8]>) -> Inbound<'a> {
    match UdpPacket::new_checked(packet.payload()) {
        Ok(udp) if udp.dst_port() == DHCP_SERVER && udp.src_port() == DHCP_CLIENT => Inbound::Dhcp(udp.payload()),
        Ok(_) => Inbound::Dropped(Dropped::Spoofed),
        Err(_) => Inbound::Dropped(Dropped::Malformed),
    }
}

fn tcp<'a>(packet: &Ipv4Packet<&'a [u8]>, whole: &'a [u8]) -> Inbound<'a> {
    let Ok(tcp) = TcpPacket::new_checked(packet.payload()) else {
        return Inbound::Dropped(Dropped::Malformed);
    };
    if tcp.src_port() == 0
        || tcp.dst_port() == 0
        || packet.dst_addr().is_broadcast()
        || packet.dst_addr().is_multicast()
    {
        return Inbound::Dropped(Dropped::Malformed);
    }
    let segment = Segment {
        from_port: tcp.src_port(),
        to: packet.dst_addr(),
        to_port: tcp.dst_port(),
        opens: tcp.syn() && !tcp.ack() && !tcp.rst() && !tcp.fin(),
        resets: tcp.rst(),
    };
    Inbound::Tcp { segment, packet: whole }
}

fn datagram<'a>(ends: &Ends, packet: &Ipv4Packet<&'a [u8]>, whole: &'a [u8]) -> Inbound<'a> {
    let Ok(udp) = UdpPacket::new_checked(packet.payload()) else {
        return Inbound::Dropped(Dropped::Malformed);
    };
    if !udp.verify_checksum(&packet.src_addr().into(), &packet.dst_addr().into()) {
        return Inbound::Dropped(Dropped::Malformed);
    }
    let to = packet.dst_addr();
    let to_gateway = to == ends.gateway_address;
    match udp.dst_port() {
        DHCP_SERVER if to_gateway || to.is_broadcast() => Inbound::Dhcp(udp.payload()),
        DNS if to_gateway => Inbound::Dns { from_port: udp.src_port(), message: udp.payload() },
        _ if to.is_broadcast() || to.is_multicast() || to == ends.network().broadcast() => Inbound::Chatter,
        0 => Inbound::Dropped(Dropped::Malformed),
        _ if udp.src_port() == 0 => Inbound::Dropped(Dropped::Malformed),
        to_port => {
            Inbound::Udp(Datagram { from_port: udp.src_port(), to, to_port, data: udp.payload(), packet: whole })
        }
    }
}

fn icmp<'a>(ends: &Ends, packet: &Ipv4Packet<&'a [u8]>, whole: &'a [u8]) -> Inbound<'a> {
    let Ok(icmp) = Icmpv4Packet::new_checked(packet.payload()) else {
        return Inbound::Dropped(Dropped::Malformed);
    };
    match Icmpv4Repr::parse(&icmp, &ChecksumCapabilities::default()) {
        Ok(Icmpv4Repr::EchoRequest { ident, seq_no, data }) if packet.dst_addr() == ends.gateway_address => {
            Inbound::Echo { ident, sequence: seq_no, data }
        }
        Ok(Icmpv4Repr::EchoRequest { .. }) => refused(packet, Refusal::Icmp, whole),
        // Never answer an ICMP error with an error.
        Ok(_) => Inbound::Chatter,
        Err(_) => Inbound::Dropped(Dropped::Malformed),
    }
}

fn refused<'a>(packet: &Ipv4Packet<&'a [u8]>, why: Refusal, whole: &'a [u8]) -> Inbound<'a> {
    let to = packet.dst_addr();
    // Multicast and broadcast packets get no ICMP error.
    let told = (!to.is_multicast() && !to.is_broadcast()).then_some(whole);
    Inbound::Refused { to: IpAddr::V4(to), why, packet: told }
}

fn ipv6<'a>(to: EthernetAddress, payload: &'a [u8]) -> Inbound<'a> {
    if to.is_multicast() {
        return Inbound::Chatter;
    }
    let address = payload.get(24..40).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
    match address {
        Some(bytes) => {
            let to = IpAddr::V6(Ipv6Addr::from(bytes));
            Inbound::Refused { to, why: Refusal::Ipv6, packet: None }
        }
        None => Inbound::Dropped(Dropped::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::frame::{reset, udp, unreachable};

    /// A frame from the guest to the gateway, with a valid IPv4 header except for the given fields.
    fn ipv4_frame(ends: &Ends, from: Ipv4Addr, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0];
        packet.extend(from.octets());
        packet.extend([93, 184, 216, 34]);
        packet.extend(payload);
        let mut view = Ipv4Packet::new_unchecked(&mut packet);
        view.set_total_len(20 + payload.len() as u16);
        view.fill_checksum();
        [&ends.gateway_mac.0[..], &ends.guest_mac.0, &[8, 0], &packet].concat()
    }

    proptest! {
        #[test]
        fn random_bytes_cause_no_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            protocol in prop_oneof![Just(1u8), Just(6), Just(17), any::<u8>()],
        ) {
            let ends = Ends::default();
            let frame = ipv4_frame(&ends, ends.guest_address, protocol, &bytes);
            for bytes in [&bytes[..], &frame] {
                match read(&ends, bytes) {
                    Inbound::Tcp { packet, .. } => drop(reset(&ends, packet)),
                    Inbound::Refused { packet: Some(packet), .. } => drop(unreachable(&ends, packet)),
                    Inbound::Udp(datagram) => {
                        prop_assert!(datagram.data.len() + 8 <= datagram.packet.len() - 20);
                        prop_assert!(unreachable(&ends, datagram.packet).is_some());
                    }
                    _ => {}
                }
            }
        }

        #[test]
        fn a_datagram_is_read_as_it_was_written(
            from in 1u16..,
            port in 1u16..,
            to: u32,
            data in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let (ends, to) = (Ends::default(), Ipv4Addr::from(to));
            let many = to.is_broadcast() || to.is_multicast() || to == ends.network().broadcast();
            prop_assume!(!many && to != ends.gateway_address);
            // Written as the guest would write it: by the gateway's own writer, with the ends swapped.
            let turned = Ends { guest_mac: ends.gateway_mac, gateway_mac: ends.guest_mac, ..ends };
            let frame = udp(&turned, (ends.guest_address, from), (to, port), &data);
            let Inbound::Udp(read) = read(&ends, &frame) else { panic!("a datagram") };
            prop_assert_eq!((read.from_port, read.to, read.to_port, read.data), (from, to, port, &data[..]));
        }

        #[test]
        fn packets_from_other_addresses_are_dropped(from: u32, protocol: u8, bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let ends = Ends::default();
            let from = Ipv4Addr::from(from);
            prop_assume!(from != ends.guest_address && !from.is_unspecified());
            let frame = ipv4_frame(&ends, from, protocol, &bytes);
            prop_assert_eq!(read(&ends, &frame), Inbound::Dropped(Dropped::Spoofed));
        }
    }

    #[test]
    fn a_reset_is_not_answered_with_a_reset() {
        let ends = Ends::default();
        let mut segment = vec![0x9c, 0x40, 0x01, 0xbb, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x04, 4, 0, 0, 0, 0, 0];
        let to = Ipv4Addr::new(93, 184, 216, 34);
        TcpPacket::new_unchecked(&mut segment).fill_checksum(&ends.guest_address.into(), &to.into());
        let frame = ipv4_frame(&ends, ends.guest_address, 6, &segment);
        let Inbound::Tcp { segment, packet } = read(&ends, &frame) else { panic!("a segment") };
        assert!(segment.resets && !segment.opens);
        assert_eq!(reset(&ends, packet), None);
    }
}
