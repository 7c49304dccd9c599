//! One sandbox's gateway: the guest's network card ends here.
//!
//! Frames arrive on a Unix datagram socket, one each. ARP, DHCP, ping and DNS are answered; TCP connections end here
//! and others begin on the host, if the policy allows the address they go to and the name they show; datagrams are
//! passed on if it allows their address and port; all else is refused. There is no device, no route and no firewall
//! rule on the host, so nothing to forget.
//!
//! ```text
//! machine ──frames──▶ link ─▶ receive ─▶ frame ─┬─ ARP, DHCP, ping: answered
//!                                               ├─ dns ──▶ resolver, pins
//!                                               ├─ udp ──▶ policy ─▶ exchange ─▶ host socket
//!                                               └─ tcp ──▶ policy ─▶ session ─▶ host socket
//!                                                                      ├─ tls (opened for secrets)
//!                                                                      └─ http (each request's host)
//! ```
//!
//! A gateway keeps nothing the guest depends on but its TCP connections: segments of one it does not know are answered
//! with a reset. So it may end and start again at any time.

mod config;
mod destination;
mod dns;
mod event;
mod flow;
mod frame;
mod gateway;
mod host;
mod http;
mod limits;
mod link;
mod name;
mod peers;
pub mod policy;
mod rate;
mod receive;
mod secret;
mod shared;
mod tcp;
mod tls;
mod totals;
mod traffic;
mod udp;

pub use config::{Cable, GatewayConfig, Interception};
pub use dns::{Pin, ResolveError, Resolved, Resolver, SystemResolver};
pub use event::{Event, EventKind, Failure, Stats, Verdict};
pub use flow::Flow;
pub use frame::{Ends, MacAddress};
pub use gateway::{Gateway, GatewayHandle, StartError};
pub use limits::{BadLimit, LimitWish, Limits};
pub use name::{HostName, NotAName};
pub use peers::{Group, Member, PeerIo, PeerStream, Peers};
pub use secret::{BadSecret, Secret, SecretSet};
pub use tls::{Authority, AuthorityError, RootsError, TrustRoots};
pub use totals::Totals;

/// The parsers of what a guest can send, for fuzzing.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::dns::{Answer, read as read_dns};
    pub use crate::frame::{Inbound, lease, read as read_frame, reset, udp, unreachable};
    pub use crate::http::{Frames, Scrubber, Search, Sent, Spelling};
    pub use crate::tcp::{Greeting, classify};
    pub use crate::tls::Hello;
    pub use crate::udp::is_quic;
}
