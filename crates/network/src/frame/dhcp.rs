//! A DHCP server for guests that ask. The lease is always the same and never expires.

use smoltcp::wire::{DhcpMessageType, DhcpOption, DhcpPacket, DhcpRepr, EthernetAddress};

use std::net::Ipv4Addr;

use super::ends::Ends;
use super::write::udp;

const SERVER: u16 = 67;
const CLIENT: u16 = 68;
/// DHCP's value for a lease that never expires. A guest may hibernate for weeks.
const FOR_EVER: u32 = u32::MAX;
/// The option for the interface's MTU.
const MTU_OPTION: u8 = 26;

/// The reply to a DHCP message of the guest, if it needs one.
pub fn lease(ends: &Ends, message: &[u8]) -> Option<Vec<u8>> {
    let packet = DhcpPacket::new_checked(message).ok()?;
    let asked = DhcpRepr::parse(&packet).ok()?;
    if asked.client_hardware_address != EthernetAddress(ends.guest_mac.0) {
        return None;
    }
    let wanted = asked.requested_ip.unwrap_or(asked.client_ip);
    let message_type = match asked.message_type {
        DhcpMessageType::Discover => DhcpMessageType::Offer,
        DhcpMessageType::Request if wanted == ends.guest_address => DhcpMessageType::Ack,
        DhcpMessageType::Request => DhcpMessageType::Nak,
        _ => return None,
    };
    let mtu = ends.mtu.to_be_bytes();
    let options = [DhcpOption { kind: MTU_OPTION, data: &mtu }];
    let reply = answer(ends, &asked, message_type, &options);
    let mut bytes = vec![0; reply.buffer_len()];
    reply.emit(&mut DhcpPacket::new_unchecked(&mut bytes)).ok()?;
    Some(udp(ends, (ends.gateway_address, SERVER), (Ipv4Addr::BROADCAST, CLIENT), &bytes))
}

fn answer<'a>(
    ends: &Ends,
    asked: &DhcpRepr<'_>,
    message_type: DhcpMessageType,
    options: &'a [DhcpOption<'a>],
) -> DhcpRepr<'a> {
    let given = message_type != DhcpMessageType::Nak;
    let mut dns_servers = asked.dns_servers.clone().unwrap_or_default();
    dns_servers.clear();
    let told = dns_servers.push(ends.gateway_address).is_ok();
    DhcpRepr {
        message_type,
        transaction_id: asked.transaction_id,
        secs: 0,
        client_hardware_address: asked.client_hardware_address,
        client_ip: Ipv4Addr::UNSPECIFIED,
        your_ip: if given { ends.guest_address } else { Ipv4Addr::UNSPECIFIED },
        server_ip: ends.gateway_address,
        router: given.then_some(ends.gateway_address),
        subnet_mask: given.then(|| ends.network().netmask()),
        relay_agent_ip: Ipv4Addr::UNSPECIFIED,
        broadcast: asked.broadcast,
        requested_ip: None,
        client_identifier: None,
        server_identifier: Some(ends.gateway_address),
        parameter_request_list: None,
        dns_servers: (given && told).then_some(dns_servers),
        max_size: None,
        lease_duration: given.then_some(FOR_EVER),
        renew_duration: None,
        rebind_duration: None,
        additional_options: if given { options } else { &[] },
    }
}
