//! Ethernet frames: parses the guest's frames and builds the replies. No I/O. Every byte read here is hostile.

mod dhcp;
mod ends;
mod read;
mod write;

pub use dhcp::lease;
pub use ends::{Ends, MacAddress};
pub use read::{Datagram, Dropped, Inbound, Segment, read};
pub use write::{
    ETHERNET_HEADER, UDP_HEADERS, arp_reply, echo_reply, encapsulate, port_unreachable, probes, reset, udp, unreachable,
};
