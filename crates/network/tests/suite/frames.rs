//! Below TCP: addresses, pings, and frames that no honest network card sends.

use std::net::Ipv4Addr;
use std::time::Duration;

use sandling_network::policy::{Range, Refusal};
use sandling_network::{Ends, EventKind};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, DhcpMessageType, DhcpPacket, DhcpRepr, EthernetAddress, EthernetFrame,
    EthernetProtocol, EthernetRepr, Icmpv4Message, Icmpv4Packet, Icmpv4Repr, IpProtocol, Ipv4Packet, Ipv4Repr,
    TcpControl, TcpPacket, TcpRepr, TcpSeqNumber, UdpPacket, UdpRepr,
};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::isolated;
use crate::world::{SHARED, STRANGER, World};

/// Whether a frame is an ICMP error "administratively prohibited".
pub fn is_unreachable(frame: &[u8]) -> Option<()> {
    (unreachable_code(frame)? == 13).then_some(())
}

/// Whether a frame is an ICMP error "port unreachable".
pub fn is_nobody_there(frame: &[u8]) -> Option<()> {
    (unreachable_code(frame)? == 3).then_some(())
}

fn unreachable_code(frame: &[u8]) -> Option<u8> {
    let icmp = icmp_of(frame)?;
    let packet = Icmpv4Packet::new_checked(&icmp[..]).ok()?;
    (packet.msg_type() == Icmpv4Message::DstUnreachable).then(|| packet.msg_code())
}

fn icmp_of(frame: &[u8]) -> Option<Vec<u8>> {
    let packet = ipv4_of(frame)?;
    let packet = Ipv4Packet::new_checked(&packet[..]).ok()?;
    (packet.next_header() == IpProtocol::Icmp).then(|| packet.payload().to_vec())
}

fn ipv4_of(frame: &[u8]) -> Option<Vec<u8>> {
    let frame = EthernetFrame::new_checked(frame).ok()?;
    (frame.ethertype() == EthernetProtocol::Ipv4).then(|| frame.payload().to_vec())
}

fn arp_of(frame: &[u8]) -> Option<ArpRepr> {
    let frame = EthernetFrame::new_checked(frame).ok()?;
    let packet = ArpPacket::new_checked(frame.payload()).ok().filter(|_| frame.ethertype() == EthernetProtocol::Arp)?;
    ArpRepr::parse(&packet)
        .ok()
        .filter(|arp| matches!(arp, ArpRepr::EthernetIpv4 { operation: ArpOperation::Reply, .. }))
}

fn ethernet(from: [u8; 6], to: [u8; 6], kind: EthernetProtocol, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 14 + payload.len()];
    let repr = EthernetRepr { src_addr: EthernetAddress(from), dst_addr: EthernetAddress(to), ethertype: kind };
    repr.emit(&mut EthernetFrame::new_unchecked(&mut frame));
    frame[14..].copy_from_slice(payload);
    frame
}

fn arp_request(from: [u8; 6], claimed: [u8; 6], source: Ipv4Addr, wanted: Ipv4Addr) -> Vec<u8> {
    let repr = ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Request,
        source_hardware_addr: EthernetAddress(claimed),
        source_protocol_addr: source,
        target_hardware_addr: EthernetAddress([0; 6]),
        target_protocol_addr: wanted,
    };
    let mut bytes = vec![0; repr.buffer_len()];
    repr.emit(&mut ArpPacket::new_unchecked(&mut bytes));
    ethernet(from, [0xff; 6], EthernetProtocol::Arp, &bytes)
}

fn ipv4(from: Ipv4Addr, to: Ipv4Addr, protocol: IpProtocol, payload: &[u8]) -> Vec<u8> {
    let repr =
        Ipv4Repr { src_addr: from, dst_addr: to, next_header: protocol, payload_len: payload.len(), hop_limit: 64 };
    let mut bytes = vec![0; repr.buffer_len() + payload.len()];
    repr.emit(&mut Ipv4Packet::new_unchecked(&mut bytes), &ChecksumCapabilities::default());
    bytes[repr.buffer_len()..].copy_from_slice(payload);
    bytes
}

fn echo(to: Ipv4Addr, ends: &Ends) -> Vec<u8> {
    let repr = Icmpv4Repr::EchoRequest { ident: 7, seq_no: 1, data: b"hello" };
    let mut bytes = vec![0; repr.buffer_len()];
    repr.emit(&mut Icmpv4Packet::new_unchecked(&mut bytes[..]), &ChecksumCapabilities::default());
    let packet = ipv4(ends.guest_address, to, IpProtocol::Icmp, &bytes);
    ethernet(ends.guest_mac.0, ends.gateway_mac.0, EthernetProtocol::Ipv4, &packet)
}

fn udp(from: Ipv4Addr, to: Ipv4Addr, ports: (u16, u16), data: &[u8]) -> Vec<u8> {
    let repr = UdpRepr { src_port: ports.0, dst_port: ports.1 };
    let mut bytes = vec![0; 8 + data.len()];
    let copy = |room: &mut [u8]| room.copy_from_slice(data);
    let mut packet = UdpPacket::new_unchecked(&mut bytes[..]);
    repr.emit(&mut packet, &from.into(), &to.into(), data.len(), copy, &ChecksumCapabilities::default());
    ipv4(from, to, IpProtocol::Udp, &bytes)
}

/// A frame of the guest with a datagram.
pub fn datagram(ends: &Ends, to: Ipv4Addr, from_port: u16, port: u16, data: &[u8]) -> Vec<u8> {
    let packet = udp(ends.guest_address, to, (from_port, port), data);
    ethernet(ends.guest_mac.0, ends.gateway_mac.0, EthernetProtocol::Ipv4, &packet)
}

/// The data of a datagram to the guest. None if the frame is something else.
pub fn datagram_of(frame: &[u8]) -> Option<Vec<u8>> {
    let packet = ipv4_of(frame)?;
    let packet = Ipv4Packet::new_checked(&packet[..]).ok().filter(|packet| packet.next_header() == IpProtocol::Udp)?;
    Some(UdpPacket::new_checked(packet.payload()).ok()?.payload().to_vec())
}

/// A SYN segment.
pub fn syn(ends: &Ends, to: Ipv4Addr, from_port: u16, port: u16) -> Vec<u8> {
    segment(ends, to, from_port, port, TcpControl::Syn, None)
}

/// A segment without data.
fn segment(ends: &Ends, to: Ipv4Addr, from_port: u16, port: u16, control: TcpControl, ack: Option<i32>) -> Vec<u8> {
    let repr = TcpRepr {
        src_port: from_port,
        dst_port: port,
        control,
        seq_number: TcpSeqNumber(i32::from(from_port)),
        ack_number: ack.map(TcpSeqNumber),
        window_len: 1024,
        window_scale: None,
        max_seg_size: Some(1460),
        sack_permitted: false,
        sack_ranges: [None; 3],
        timestamp: None,
        payload: &[],
    };
    let mut bytes = vec![0; repr.buffer_len()];
    let mut packet = TcpPacket::new_unchecked(&mut bytes[..]);
    repr.emit(&mut packet, &ends.guest_address.into(), &to.into(), &ChecksumCapabilities::default());
    let packet = ipv4(ends.guest_address, to, IpProtocol::Tcp, &bytes);
    ethernet(ends.guest_mac.0, ends.gateway_mac.0, EthernetProtocol::Ipv4, &packet)
}

/// Checks that the gateway still answers.
async fn gateway_lives(world: &mut World) {
    world.guest.forget_frames();
    let ends = world.guest.ends;
    world.guest.inject(&echo(ends.gateway_address, &ends)).await;
    assert!(world.guest.frame(icmp_of).await.is_some(), "the gateway no longer answers");
}

isolated! {
    async fn the_gateway_answers_pings_and_arp() {
        let mut world = World::open().await;
        let ends = world.guest.ends;
        world.guest.inject(&arp_request(ends.guest_mac.0, ends.guest_mac.0, ends.guest_address, ends.gateway_address)).await;
        let Some(ArpRepr::EthernetIpv4 { source_hardware_addr, .. }) = world.guest.frame(arp_of).await else {
            panic!("no answer")
        };
        assert_eq!(source_hardware_addr, EthernetAddress(ends.gateway_mac.0));
        gateway_lives(&mut world).await;
    }

    async fn arp_answers_only_for_the_gateway_and_only_to_the_guest() {
        let mut world = World::open().await;
        let (ends, stranger) = (world.guest.ends, [2, 0, 0, 0, 0, 99]);
        for frame in [
            arp_request(ends.guest_mac.0, ends.guest_mac.0, ends.guest_address, Ipv4Addr::new(10, 83, 76, 9)),
            arp_request(ends.guest_mac.0, ends.guest_mac.0, ends.guest_address, STRANGER),
            arp_request(stranger, stranger, ends.guest_address, ends.gateway_address),
            arp_request(ends.guest_mac.0, stranger, ends.guest_address, ends.gateway_address),
            arp_request(ends.guest_mac.0, ends.guest_mac.0, ends.gateway_address, ends.gateway_address),
        ] {
            world.guest.inject(&frame).await;
        }
        assert!(world.guest.frame_within(Duration::from_millis(300), arp_of).await.is_none());
        assert_eq!(world.gateway().stats().spoofed, 3);
    }

    async fn mac_and_address_spoofing() {
        let mut world = World::open().await;
        let ends = world.guest.ends;
        let mut other_mac = echo(ends.gateway_address, &ends);
        other_mac[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 99]);
        world.guest.inject(&other_mac).await;
        let as_other = Ends { guest_address: Ipv4Addr::new(10, 83, 76, 77), ..ends };
        world.guest.inject(&echo(ends.gateway_address, &as_other)).await;
        assert!(world.guest.frame_within(Duration::from_millis(300), icmp_of).await.is_none());
        assert_eq!(world.gateway().stats().spoofed, 2);
        world.refused(EventKind::Packet, Refusal::Spoofed).await;
        gateway_lives(&mut world).await;
    }

    async fn icmp_to_others() {
        let mut world = World::open().await;
        let ends = world.guest.ends;
        world.guest.inject(&echo(SHARED, &ends)).await;
        assert!(world.guest.frame(is_unreachable).await.is_some());
        world.refused(EventKind::Packet, Refusal::Icmp).await;
    }

    async fn other_ip_protocols() {
        let mut world = World::open().await;
        let ends = world.guest.ends;
        for protocol in [4, 41, 47, 50, 132] {
            let packet = ipv4(ends.guest_address, SHARED, IpProtocol::Unknown(protocol), &[0; 40]);
            world.guest.inject(&ethernet(ends.guest_mac.0, ends.gateway_mac.0, EthernetProtocol::Ipv4, &packet)).await;
            assert!(world.guest.frame(is_unreachable).await.is_some(), "{protocol}");
            world.refused(EventKind::Packet, Refusal::IpProtocol).await;
        }
    }

    async fn ipv6_and_its_disguises() {
        let mut world = World::open().await;
        let ends = world.guest.ends;
        for (to, why) in [
            ("2606:2800:220:1::1", Refusal::Ipv6),
            ("::ffff:169.254.169.254", Refusal::Range(Range::Metadata)),
            ("64:ff9b::169.254.169.254", Refusal::Range(Range::Metadata)),
            ("2002:7f00:1::", Refusal::Range(Range::Loopback)),
            ("::10.0.0.1", Refusal::Range(Range::Private)),
        ] {
            let mut packet = vec![0; 48];
            packet[0] = 0x60;
            packet[6] = 17;
            packet[24..40].copy_from_slice(&to.parse::<std::net::Ipv6Addr>().unwrap().octets());
            world.guest.inject(&ethernet(ends.guest_mac.0, ends.gateway_mac.0, EthernetProtocol::Ipv6, &packet)).await;
            world.refused(EventKind::Packet, why).await;
        }
        assert!(world.nobody_was_reached().await);
        // The gateway never advertises a router: there was no reply at all.
        let ipv6 = |frame: &[u8]| (frame[12..14] == [0x86, 0xdd]).then_some(());
        assert!(world.guest.frame_within(Duration::from_millis(200), ipv6).await.is_none());
    }

    async fn fragments() {
        let mut world = World::open().await;
        let ends = world.guest.ends;
        let whole = udp(ends.guest_address, ends.gateway_address, (5555, 53), &[0; 64]);
        for (more, offset) in [(true, 0), (false, 8), (true, 8)] {
            let mut packet = whole.clone();
            let mut view = Ipv4Packet::new_unchecked(&mut packet);
            view.set_more_frags(more);
            view.set_frag_offset(offset);
            view.fill_checksum();
            world.guest.inject(&ethernet(ends.guest_mac.0, ends.gateway_mac.0, EthernetProtocol::Ipv4, &packet)).await;
        }
        gateway_lives(&mut world).await;
        assert_eq!(world.gateway().stats().fragments, 3);
        world.refused(EventKind::Packet, Refusal::Fragment).await;
        assert_eq!(world.gateway().stats().dns_queries, 0);
    }

    async fn malformed_and_oversized_frames() {
        let mut world = World::open().await;
        let ends = world.guest.ends;
        let good = echo(ends.gateway_address, &ends);
        for length in 0..good.len() {
            world.guest.inject(&good[..length]).await;
        }
        for place in 14..good.len() {
            let mut bad = good.clone();
            bad[place] ^= 0xff;
            world.guest.inject(&bad).await;
        }
        for length in [usize::from(ends.mtu) + 15, 60_000, 65_000] {
            let mut frame = good.clone();
            frame.resize(length, 0);
            world.guest.inject(&frame).await;
        }
        gateway_lives(&mut world).await;
        let stats = world.gateway().stats();
        assert_eq!(stats.oversized, 3);
        assert!(stats.malformed > 60, "{stats:?}");
        assert!(stats.packets_refused > 60, "{stats:?}");
        world.refused(EventKind::Packet, Refusal::FrameMalformed).await;
        world.refused(EventKind::Packet, Refusal::FrameOversized).await;
    }

    async fn dhcp_always_gives_the_same_lease() {
        let mut world = World::open().await;
        let ends = world.guest.ends;
        for (asked, wanted, expected) in [
            (DhcpMessageType::Discover, None, DhcpMessageType::Offer),
            (DhcpMessageType::Request, Some(ends.guest_address), DhcpMessageType::Ack),
            (DhcpMessageType::Request, Some(Ipv4Addr::new(10, 83, 76, 50)), DhcpMessageType::Nak),
        ] {
            world.guest.inject(&dhcp(&ends, asked, wanted)).await;
            let (kind, lease) = world.guest.frame(dhcp_of).await.expect("no answer");
            assert_eq!(kind, expected);
            if expected == DhcpMessageType::Ack {
                assert_eq!(lease, (ends.guest_address, Some(ends.gateway_address), vec![ends.gateway_address]));
            }
        }
    }

    async fn a_flood_of_useless_segments_is_slowed_down() {
        let world = World::open().await;
        let mut stream = world.guest.connect(SHARED, 7).await.unwrap();
        let ends = world.guest.ends;
        let useless = segment(&ends, SHARED, stream.port(), 7, TcpControl::None, Some(1));
        let flood = async {
            loop {
                world.guest.inject(&useless).await;
            }
        };
        let counted = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let (before, start) = (world.gateway().stats().frames_in, std::time::Instant::now());
            tokio::time::sleep(Duration::from_secs(2)).await;
            let rate = (world.gateway().stats().frames_in - before) as f64 / start.elapsed().as_secs_f64();
            assert!(rate < 8_000.0, "{rate} segments a second were read");
        };
        tokio::select! {
            () = counted => {}
            () = flood => {}
        }
        stream.write_all(b"\0").await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), 0, "the connection itself goes on");
    }

    async fn a_flood_of_useless_frames_does_not_slow_other_sandboxes() {
        let world = World::open().await;
        let mut config = world.config("gateway-b", "machine-b");
        config.policy = sandling_network::policy::Policy::of(sandling_network::policy::Mode::Open);
        let _other = sandling_network::Gateway::start(config).unwrap();
        let neighbour = crate::world::guest(&world.directory, "machine-b", "gateway-b");
        let flood = async {
            let rubbish = [0x55; 600];
            loop {
                world.guest.inject(&rubbish).await;
            }
        };
        let calm = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let before = world.gateway().stats().frames_in;
            let start = std::time::Instant::now();
            for _ in 0..20 {
                let request = "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n";
                let stream = neighbour.connect(SHARED, 80).await.unwrap();
                assert!(crate::world::exchange(stream, request).await.unwrap().starts_with("HTTP/1.1 200"));
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            let rate = (world.gateway().stats().frames_in - before) as f64 / start.elapsed().as_secs_f64();
            assert!(rate < 8_000.0, "{rate} frames of rubbish a second were read");
        };
        tokio::select! {
            () = calm => {}
            () = flood => {}
        }
    }
}

fn dhcp(ends: &Ends, kind: DhcpMessageType, wanted: Option<Ipv4Addr>) -> Vec<u8> {
    let repr = DhcpRepr {
        message_type: kind,
        transaction_id: 42,
        secs: 0,
        client_hardware_address: EthernetAddress(ends.guest_mac.0),
        client_ip: Ipv4Addr::UNSPECIFIED,
        your_ip: Ipv4Addr::UNSPECIFIED,
        server_ip: Ipv4Addr::UNSPECIFIED,
        router: None,
        subnet_mask: None,
        relay_agent_ip: Ipv4Addr::UNSPECIFIED,
        broadcast: true,
        requested_ip: wanted,
        client_identifier: None,
        server_identifier: None,
        parameter_request_list: None,
        dns_servers: None,
        max_size: None,
        lease_duration: None,
        renew_duration: None,
        rebind_duration: None,
        additional_options: &[],
    };
    let mut bytes = vec![0; repr.buffer_len()];
    repr.emit(&mut DhcpPacket::new_unchecked(&mut bytes)).unwrap();
    let packet = udp(Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST, (68, 67), &bytes);
    ethernet(ends.guest_mac.0, [0xff; 6], EthernetProtocol::Ipv4, &packet)
}

type Lease = (Ipv4Addr, Option<Ipv4Addr>, Vec<Ipv4Addr>);

fn dhcp_of(frame: &[u8]) -> Option<(DhcpMessageType, Lease)> {
    let packet = ipv4_of(frame)?;
    let packet = Ipv4Packet::new_checked(&packet[..]).ok().filter(|packet| packet.next_header() == IpProtocol::Udp)?;
    let udp = UdpPacket::new_checked(packet.payload()).ok().filter(|udp| udp.src_port() == 67)?;
    let packet = DhcpPacket::new_checked(udp.payload()).ok()?;
    let repr = DhcpRepr::parse(&packet).ok()?;
    let servers = repr.dns_servers.iter().flatten().copied().collect();
    Some((repr.message_type, (repr.your_ip, repr.router, servers)))
}
