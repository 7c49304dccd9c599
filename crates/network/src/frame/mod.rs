//! Ethernet frames: what the guest's frames mean, and the frames that answer them. Pure; every byte read here is hostile.

mod dhcp;
mod ends;
mod read;
mod write;

pub use dhcp::lease;
pub use ends::{Ends, MacAddress};
pub use read::{Datagram, Dropped, Inbound, Segment, read};
pub use write::{
    ETHERNET_HEADER, UDP_HEADERS, arp_reply, echo_reply, encapsulate, nobody_there, probes, reset, udp, unreachable,
};
