//! What tells one connection or exchange of datagrams from another.

use std::net::Ipv4Addr;
use std::ops::Range;
use std::sync::atomic::{AtomicU16, Ordering};

use serde::{Deserialize, Serialize};

use crate::frame::{Datagram, Segment};

/// Ports from which the gateway turns to the guest, for its peers.
pub(crate) const OWN_PORTS: Range<u16> = 32_768..61_000;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// What tells one connection or exchange from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Flow {
    pub guest_port: u16,
    pub address: Ipv4Addr,
    pub port: u16,
}

impl Flow {
    /// What the gateway begins next with the guest's `port`; it may be that there is such a one.
    pub(crate) fn next_own(gateway: Ipv4Addr, port: u16) -> Flow {
        let own = OWN_PORTS.start + NEXT.fetch_add(1, Ordering::Relaxed) % (OWN_PORTS.end - OWN_PORTS.start);
        Flow { guest_port: port, address: gateway, port: own }
    }
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
