//! Builds the frames that go to the guest.

use std::net::Ipv4Addr;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetFrame, EthernetProtocol, EthernetRepr, Icmpv4DstUnreachable,
    Icmpv4Packet, Icmpv4Repr, IpProtocol, Ipv4Packet, Ipv4Repr, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber,
    UdpPacket, UdpRepr,
};

use super::ends::Ends;
use crate::flow::Flow;

/// Length of an Ethernet header.
pub const ETHERNET_HEADER: usize = 14;
/// Length of the IPv4 and UDP headers of a datagram.
pub const UDP_HEADERS: usize = 28;
const HOP_LIMIT: u8 = 64;
/// How many bytes of the offending packet's payload an ICMP error repeats.
const REPEATED: usize = 8;

/// Writes the Ethernet header of an IPv4 packet to the guest at the start of `frame`.
pub fn encapsulate(ends: &Ends, frame: &mut [u8]) {
    let repr = EthernetRepr { src_addr: ends.gateway(), dst_addr: ends.guest(), ethertype: EthernetProtocol::Ipv4 };
    repr.emit(&mut EthernetFrame::new_unchecked(frame));
}

/// The ARP reply with the gateway's Ethernet address.
pub fn arp_reply(ends: &Ends) -> Vec<u8> {
    let arp = ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Reply,
        source_hardware_addr: ends.gateway(),
        source_protocol_addr: ends.gateway_address,
        target_hardware_addr: ends.guest(),
        target_protocol_addr: ends.guest_address,
    };
    let mut bytes = vec![0; ETHERNET_HEADER + arp.buffer_len()];
    let header = EthernetRepr { src_addr: ends.gateway(), dst_addr: ends.guest(), ethertype: EthernetProtocol::Arp };
    header.emit(&mut EthernetFrame::new_unchecked(&mut bytes));
    arp.emit(&mut ArpPacket::new_unchecked(&mut bytes[ETHERNET_HEADER..]));
    bytes
}

/// The reply to a ping to the gateway.
pub fn echo_reply(ends: &Ends, ident: u16, sequence: u16, data: &[u8]) -> Vec<u8> {
    icmp(ends, ends.gateway_address, Icmpv4Repr::EchoReply { ident, seq_no: sequence, data })
}

/// The ICMP error that `packet`, a complete packet of the guest, is administratively prohibited.
pub fn unreachable(ends: &Ends, packet: &[u8]) -> Option<Vec<u8>> {
    let packet = Ipv4Packet::new_checked(packet).ok()?;
    let header = Ipv4Repr::parse(&packet, &ChecksumCapabilities::ignored()).ok()?;
    let data = &packet.payload()[..packet.payload().len().min(REPEATED)];
    let reason = Icmpv4DstUnreachable::CommProhibited;
    Some(icmp(ends, ends.gateway_address, Icmpv4Repr::DstUnreachable { reason, header, data }))
}

/// The ICMP error, in the name of the destination host, that its UDP port is closed.
pub fn port_unreachable(ends: &Ends, flow: &Flow) -> Vec<u8> {
    let header = Ipv4Repr {
        src_addr: ends.guest_address,
        dst_addr: flow.address,
        next_header: IpProtocol::Udp,
        payload_len: REPEATED,
        hop_limit: HOP_LIMIT,
    };
    let mut data = [0; REPEATED];
    let mut udp = UdpPacket::new_unchecked(&mut data[..]);
    udp.set_src_port(flow.guest_port);
    udp.set_dst_port(flow.port);
    udp.set_len(REPEATED as u16);
    let reason = Icmpv4DstUnreachable::PortUnreachable;
    icmp(ends, flow.address, Icmpv4Repr::DstUnreachable { reason, header, data: &data })
}

fn icmp(ends: &Ends, from: Ipv4Addr, repr: Icmpv4Repr<'_>) -> Vec<u8> {
    ipv4(ends, from, ends.guest_address, IpProtocol::Icmp, repr.buffer_len(), |payload| {
        repr.emit(&mut Icmpv4Packet::new_unchecked(payload), &ChecksumCapabilities::default());
    })
}

/// A datagram to the guest.
pub fn udp(ends: &Ends, from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), data: &[u8]) -> Vec<u8> {
    let repr = UdpRepr { src_port: from.1, dst_port: to.1 };
    let (from, to, length) = (from.0, to.0, repr.header_len() + data.len());
    ipv4(ends, from, to, IpProtocol::Udp, length, |payload| {
        let mut packet = UdpPacket::new_unchecked(payload);
        let copy = |room: &mut [u8]| room.copy_from_slice(data);
        repr.emit(&mut packet, &from.into(), &to.into(), data.len(), copy, &ChecksumCapabilities::default());
    })
}

/// The reset that answers `packet`, a TCP segment of the guest. None if the segment is damaged, or a reset itself.
pub fn reset(ends: &Ends, packet: &[u8]) -> Option<Vec<u8>> {
    let packet = Ipv4Packet::new_checked(packet).ok()?;
    let (guest, host) = (packet.src_addr(), packet.dst_addr());
    let tcp = TcpPacket::new_checked(packet.payload()).ok()?;
    let tcp = TcpRepr::parse(&tcp, &guest.into(), &host.into(), &ChecksumCapabilities::default()).ok()?;
    if tcp.control == TcpControl::Rst {
        return None;
    }
    let (seq_number, ack_number) = match tcp.ack_number {
        Some(number) => (number, None),
        None => (TcpSeqNumber(0), Some(tcp.seq_number + tcp.segment_len())),
    };
    Some(bare_segment(ends, (host, tcp.dst_port), (guest, tcp.src_port), (TcpControl::Rst, seq_number, ack_number)))
}

/// Two segments of a connection with the guest. At least one is outside the receive window, wherever that is, so the
/// guest replies with the sequence numbers that it expects.
pub fn probes(ends: &Ends, flow: &Flow) -> [Vec<u8>; 2] {
    let (from, to) = ((flow.address, flow.port), (ends.guest_address, flow.guest_port));
    let numbers = [0, i32::MIN].map(TcpSeqNumber);
    numbers.map(|number| bare_segment(ends, from, to, (TcpControl::None, number, Some(TcpSeqNumber(0)))))
}

/// A segment without data or options: its flags, its sequence number, and the number it acknowledges.
fn bare_segment(
    ends: &Ends,
    (from, from_port): (Ipv4Addr, u16),
    (to, to_port): (Ipv4Addr, u16),
    (control, seq_number, ack_number): (TcpControl, TcpSeqNumber, Option<TcpSeqNumber>),
) -> Vec<u8> {
    let repr = TcpRepr {
        src_port: from_port,
        dst_port: to_port,
        control,
        seq_number,
        ack_number,
        window_len: 0,
        window_scale: None,
        max_seg_size: None,
        sack_permitted: false,
        sack_ranges: [None; 3],
        timestamp: None,
        payload: &[],
    };
    ipv4(ends, from, to, IpProtocol::Tcp, repr.buffer_len(), |payload| {
        let mut packet = TcpPacket::new_unchecked(payload);
        repr.emit(&mut packet, &from.into(), &to.into(), &ChecksumCapabilities::default());
    })
}

fn ipv4(
    ends: &Ends,
    from: Ipv4Addr,
    to: Ipv4Addr,
    protocol: IpProtocol,
    length: usize,
    fill: impl FnOnce(&mut [u8]),
) -> Vec<u8> {
    let header =
        Ipv4Repr { src_addr: from, dst_addr: to, next_header: protocol, payload_len: length, hop_limit: HOP_LIMIT };
    let mut bytes = vec![0; ETHERNET_HEADER + header.buffer_len() + length];
    encapsulate(ends, &mut bytes);
    let mut packet = Ipv4Packet::new_unchecked(&mut bytes[ETHERNET_HEADER..]);
    header.emit(&mut packet, &ChecksumCapabilities::default());
    fill(packet.payload_mut());
    bytes
}
