//! Sandboxes of one group see each other by name.
//!
//! A peer's name resolves to an address of the gateway's own choosing; a connection there is handed to `Peers`, which
//! opens one into the other sandbox. No frame ever passes from one guest to another.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use futures_util::future::BoxFuture;
use ipnet::Ipv4Net;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::gateway::GatewayHandle;
use crate::name::HostName;
use crate::shared::Shared;
use crate::tcp::dial;

/// A connection into another sandbox.
pub type PeerStream = Box<dyn PeerIo>;

/// What a connection can do.
pub trait PeerIo: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> PeerIo for T {}

/// Who else is in the group.
pub trait Peers: Send + Sync + 'static {
    /// Whether there is a peer of this name.
    fn has(&self, name: &HostName) -> bool;

    /// Connects to `port` of the peer of this name.
    fn connect<'a>(&'a self, name: &'a HostName, port: u16) -> BoxFuture<'a, io::Result<PeerStream>>;
}

/// The addresses that stand for peers, given out as names are asked for.
pub(crate) struct PeerNames {
    peers: Option<Arc<dyn Peers>>,
    network: Ipv4Net,
    given: Mutex<Vec<HostName>>,
}

impl PeerNames {
    pub fn new(peers: Option<Arc<dyn Peers>>, network: Ipv4Net) -> PeerNames {
        PeerNames { peers, network, given: Mutex::default() }
    }

    /// The address that stands for `name`.
    pub fn address(&self, name: &HostName) -> Option<Ipv4Addr> {
        if !self.peers.as_ref()?.has(name) {
            return None;
        }
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let place = given.iter().position(|known| known == name).unwrap_or(given.len());
        let address = self.network.hosts().nth(place)?;
        if place == given.len() {
            given.push(name.clone());
        }
        Some(address)
    }

    /// The peer that `address` stands for, while it is one.
    pub fn name(&self, address: Ipv4Addr) -> Option<HostName> {
        let peers = self.peers.as_ref()?;
        if !self.network.contains(&address) {
            return None;
        }
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let place = self.network.hosts().position(|host| host == address)?;
        given.get(place).filter(|name| peers.has(name)).cloned()
    }

    /// Connects to the peer that `address` stands for.
    pub async fn connect(&self, address: Ipv4Addr, port: u16) -> io::Result<PeerStream> {
        let (Some(name), Some(peers)) = (self.name(address), &self.peers) else {
            return Err(ErrorKind::HostUnreachable.into());
        };
        peers.connect(&name, port).await
    }
}

/// A named group of sandboxes on this host.
#[derive(Default)]
pub struct Group(Mutex<HashMap<HostName, Weak<Shared>>>);

impl Group {
    /// A group without members. Hand it to the gateways of its members, then let them join.
    pub fn new() -> Arc<Group> {
        Arc::default()
    }

    /// Lets the others reach this sandbox by `name`.
    pub fn join(&self, name: HostName, gateway: &GatewayHandle) {
        self.lock().insert(name, Arc::downgrade(gateway.shared()));
    }

    /// The others no longer reach it.
    pub fn leave(&self, name: &HostName) {
        self.lock().remove(name);
    }

    fn member(&self, name: &HostName) -> Option<Arc<Shared>> {
        self.lock().get(name).and_then(Weak::upgrade)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<HostName, Weak<Shared>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Peers for Group {
    fn has(&self, name: &HostName) -> bool {
        self.member(name).is_some()
    }

    fn connect<'a>(&'a self, name: &'a HostName, port: u16) -> BoxFuture<'a, io::Result<PeerStream>> {
        Box::pin(async move {
            let member = self.member(name).ok_or(ErrorKind::HostUnreachable)?;
            Ok(Box::new(dial(&member, port).await?) as PeerStream)
        })
    }
}
