//! Ethernet frames from a hostile guest: each is read, refused or answered.

use sandling_network::Ends;
use sandling_network::fuzzing::{Inbound, is_quic, lease, read_frame, reset, udp, unreachable};

pub fn run(data: &[u8]) {
    let ends = Ends::default();
    // A frame with other addresses is dropped, so most are sent with the right ones.
    let frame = [&ends.gateway_mac.0[..], &ends.guest_mac.0, data].concat();
    for bytes in [data, &frame] {
        match read_frame(&ends, bytes) {
            Inbound::Dhcp(message) => drop(lease(&ends, message)),
            Inbound::Tcp { packet, .. } => drop(reset(&ends, packet)),
            Inbound::Refused { packet: Some(packet), .. } => drop(unreachable(&ends, packet)),
            Inbound::Udp(datagram) => {
                is_quic(datagram.data);
                assert!(unreachable(&ends, datagram.packet).is_some(), "the guest can always be told");
                // As an answer of the same size would be.
                let (from, to) = ((datagram.to, datagram.to_port), (ends.guest_address, datagram.from_port));
                drop(udp(&ends, from, to, datagram.data));
            }
            _ => {}
        }
    }
    drop(lease(&ends, data));
    drop(reset(&ends, data));
    drop(unreachable(&ends, data));
}
