//! The gateway of one sandbox: the guest's network card ends here.
//!
//! Each Ethernet frame arrives as one Unix datagram. The gateway answers ARP, DHCP, ping and DNS itself. It terminates
//! the guest's TCP connections and opens its own on the host, if the policy allows the destination address and the name
//! that the connection shows. It forwards UDP datagrams if the policy allows their address and port. It refuses
//! everything else. The host gets no network device, no route and no firewall rule, so there is nothing to clean up.
//!
//! ```text
//! machine ──frames──▶ link ─▶ receive ─▶ frame ─┬─ ARP, DHCP, ping: answered here
//!                                               ├─ dns_server ──▶ resolver, pins
//!                                               ├─ datagrams ──▶ policy ─▶ host socket
//!                                               └─ connections ──▶ policy ─▶ host socket
//!                                                    ├─ tls (intercepted for secrets)
//!                                                    └─ http (judges the host of each request)
//! ```
//!
//! The gateway holds no state that the guest depends on, except its TCP connections: it answers a segment of an unknown
//! connection with a reset. So a gateway can stop and start again at any time.
//!
//! The modules form layers, and each uses only those above it in this list:
//!
//! - data and policy: `name`, `policy`, `placement`, `secret`, `header_rules`, `limits`, `rate`, `host`, `flow`
//! - packets and decisions: `frame`, `event`, `totals`, `journal`
//! - the guest's side and the accounting: `link`, `meters`, `traffic`, `peers`, `destination`
//! - protocol parts that do not know about each other: `dns`, `tls`, `tcp`, `udp`
//! - `shared`: the state of one gateway
//! - protocols: `dns_server`, `session`, `http`, `connections`, `datagrams`
//! - the gateway: `receive`, `config`, `gateway`, `group`, `fuzzing`

mod config;
mod connections;
mod datagrams;
mod destination;
mod dns;
mod dns_server;
mod event;
mod flow;
mod frame;
#[doc(hidden)]
pub mod fuzzing;
mod gateway;
mod group;
mod header_rules;
mod host;
mod http;
mod journal;
mod limits;
mod link;
mod meters;
mod name;
mod peers;
mod placement;
pub mod policy;
mod rate;
mod receive;
mod secret;
mod session;
mod shared;
mod tcp;
mod tls;
mod totals;
mod traffic;
mod udp;

pub use config::{GatewayConfig, Interception};
pub use dns::{Pin, ResolveError, Resolved, Resolver, SystemResolver};
pub use event::{Event, EventKind, Failure, Verdict};
pub use flow::Flow;
pub use frame::{Ends, MacAddress};
pub use gateway::{Gateway, GatewayHandle, StartError};
pub use group::{Group, Member};
pub use header_rules::{BadHeaderRule, HeaderRules, HeadersByHost};
pub use host::addresses as host_addresses;
pub use journal::Stats;
pub use limits::{BadLimit, LimitRequest, Limits};
pub use link::Cable;
pub use name::{HostName, NotAName};
pub use peers::{PeerIo, PeerStream, Peers};
pub use placement::{BadPlacement, Placement};
pub use secret::{BadSecret, Secret, SecretSet};
pub use tls::{Authority, AuthorityError, RootsError, TrustRoots, is_certificate_of};
pub use totals::Totals;
