//! The identity of a connection or of an exchange of datagrams.

use std::net::Ipv4Addr;
use std::ops::Range;
use std::sync::atomic::{AtomicU16, Ordering};

use serde::{Deserialize, Serialize};

/// The gateway's own ports for connections to the guest that peers open.
pub(crate) const OWN_PORTS: Range<u16> = 32_768..61_000;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// Identifies one connection or exchange of datagrams of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Flow {
    pub guest_port: u16,
    pub address: Ipv4Addr,
    pub port: u16,
}

impl Flow {
    /// The next flow from one of the gateway's own ports to the guest's `port`. The flow may already be in use.
    pub(crate) fn next_own(gateway: Ipv4Addr, port: u16) -> Flow {
        let own = OWN_PORTS.start + NEXT.fetch_add(1, Ordering::Relaxed) % (OWN_PORTS.end - OWN_PORTS.start);
        Flow { guest_port: port, address: gateway, port: own }
    }
}
