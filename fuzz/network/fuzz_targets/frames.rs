//! Ethernet frames from a hostile guest: whatever they hold, they are read, refused or answered without panic.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sandling_network::Ends;
use sandling_network::fuzzing::{Inbound, is_quic, lease, read_frame, reset, udp, unreachable};

fuzz_target!(|data: &[u8]| {
    let ends = Ends::default();
    // The interesting bytes come after the addresses, which are either right or the end of it.
    let mut frame = Vec::with_capacity(12 + data.len());
    frame.extend_from_slice(&ends.gateway_mac.0);
    frame.extend_from_slice(&ends.guest_mac.0);
    frame.extend_from_slice(data);
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
});
