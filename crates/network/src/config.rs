//! The configuration that a gateway starts with.

use std::sync::Arc;

use ipnet::Ipv4Net;
use sandling_proxy::UpstreamProxy;
use tokio::sync::mpsc;

use crate::dns::{Pin, Resolver};
use crate::event::Event;
use crate::flow::Flow;
use crate::frame::Ends;
use crate::header_rules::HeaderRules;
use crate::limits::Limits;
use crate::link::Cable;
use crate::peers::Peers;
use crate::policy::{Learned, Policy};
use crate::secret::SecretSet;
use crate::tls::{Authority, TrustRoots};
use crate::totals::Totals;

/// The configuration that a gateway starts with. Everything except the cable and the resolver defaults to a value that
/// allows nothing.
pub struct GatewayConfig {
    pub cable: Cable,
    pub ends: Ends,
    pub policy: Policy,
    /// The workspace's policy, if it binds: the sandbox's policy can then only narrow it.
    pub bound: Option<Policy>,
    /// Networks outside the public internet that the operator allows.
    pub opened: Vec<Ipv4Net>,
    pub limits: Limits,
    pub secrets: SecretSet,
    pub header_rules: HeaderRules,
    /// Required to intercept TLS, for secrets, header rules and the policy's TLS mode `inspected`.
    pub interception: Option<Interception>,
    pub resolver: Arc<dyn Resolver>,
    /// Carries TCP connections to everything outside the host, except to the hosts that it does not serve.
    pub proxy: Option<UpstreamProxy>,
    /// Receives the decisions. If the channel is full or closed, the gateway counts the event as lost.
    pub events: Option<mpsc::Sender<Event>>,
    /// Counters that all gateways of a daemon share.
    pub totals: Arc<Totals>,
    pub peers: Option<Arc<dyn Peers>>,
    /// Pins of an earlier gateway of this sandbox, or of its parent.
    pub pins: Vec<Pin>,
    /// Destinations that an earlier gateway of this sandbox learned.
    pub learned: Learned,
    /// Connections of an earlier gateway that the guest may still have. The gateway resets them at once.
    pub cut: Vec<Flow>,
    /// Bytes that the guest sent through earlier gateways of this sandbox.
    pub bytes_out: u64,
    /// Whether the guest may send now. Its frames wait until it may.
    pub fence: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
}

/// What the gateway needs to intercept TLS.
#[derive(Clone)]
pub struct Interception {
    /// The sandbox's own certificate authority, which its guest trusts.
    pub authority: Arc<Authority>,
    /// The authorities that the gateway verifies servers against.
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
            header_rules: HeaderRules::default(),
            interception: None,
            resolver,
            proxy: None,
            events: None,
            totals: Arc::default(),
            peers: None,
            pins: Vec::new(),
            learned: Learned::default(),
            cut: Vec::new(),
            bytes_out: 0,
            fence: None,
        }
    }
}
