//! What a gateway is started with.

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::Arc;

use ipnet::Ipv4Net;
use tokio::sync::mpsc;

use crate::dns::{Pin, Resolver};
use crate::event::Event;
use crate::flow::Flow;
use crate::frame::Ends;
use crate::limits::Limits;
use crate::peers::Peers;
use crate::policy::{Learned, Policy};
use crate::secret::SecretSet;
use crate::tls::{Authority, TrustRoots};
use crate::totals::Totals;

/// How frames come from the machine and get there.
pub enum Cable {
    /// Our end of a pair of datagram sockets; QEMU was born with the other (`local.type=fd`). Nobody else can reach it.
    Pair(UnixDatagram),
    /// Sockets with names, that either side may bind anew at any time.
    Named {
        /// Where the gateway receives frames: QEMU's `remote.path`. What is there is replaced. Whoever may send there is
        /// the guest to this gateway, so its directory should be closed.
        gateway: PathBuf,
        /// Where the machine receives frames: QEMU's `local.path`. It need not be there yet.
        machine: PathBuf,
    },
}

/// What a gateway is started with. Everything but the cable and the resolver has a default that allows nothing.
pub struct GatewayConfig {
    pub cable: Cable,
    pub ends: Ends,
    pub policy: Policy,
    /// The workspace's policy, where the sandbox's can only narrow it.
    pub bound: Option<Policy>,
    /// Networks outside the public internet that the operator opened.
    pub opened: Vec<Ipv4Net>,
    pub limits: Limits,
    pub secrets: SecretSet,
    /// Needed to open TLS: for secrets, and for the policy's `inspected`.
    pub interception: Option<Interception>,
    pub resolver: Arc<dyn Resolver>,
    /// Where decisions are told. Full or gone, they are counted as lost.
    pub events: Option<mpsc::Sender<Event>>,
    /// Where all gateways of a daemon count together.
    pub totals: Arc<Totals>,
    pub peers: Option<Arc<dyn Peers>>,
    /// What an earlier gateway of the same sandbox, or its parent's, had pinned.
    pub pins: Vec<Pin>,
    /// What was learned by an earlier gateway of the same sandbox.
    pub learned: Learned,
    /// Connections that the guest may still have, of another gateway's. They are reset at once.
    pub cut: Vec<Flow>,
    /// Bytes out of earlier gateways of the same sandbox.
    pub bytes_out: u64,
}

/// What opening TLS needs.
#[derive(Clone)]
pub struct Interception {
    /// The sandbox's own authority, which its guest trusts.
    pub authority: Arc<Authority>,
    /// Whom servers are verified against.
    pub roots: TrustRoots,
}

impl GatewayConfig {
    /// A gateway that denies everything.
    pub fn new(cable: Cable, resolver: Arc<dyn Resolver>) -> GatewayConfig {
        GatewayConfig {
            cable,
            ends: Ends::default(),
            policy: Policy::default(),
            bound: None,
            opened: Vec::new(),
            limits: Limits::default(),
            secrets: SecretSet::default(),
            interception: None,
            resolver,
            events: None,
            totals: Arc::default(),
            peers: None,
            pins: Vec::new(),
            learned: Learned::default(),
            cut: Vec::new(),
            bytes_out: 0,
        }
    }
}
