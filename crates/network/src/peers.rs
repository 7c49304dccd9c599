//! Name resolution and connections between the sandboxes of one group.
//!
//! The gateway assigns each peer an address and resolves the peer's name to it. It hands a connection to such an
//! address to `Peers`, which opens one into the other sandbox. Frames never pass from one guest to another.

use std::io::{self, ErrorKind};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use futures_util::future::BoxFuture;
use ipnet::Ipv4Net;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixDatagram;

use crate::name::HostName;

/// A connection into another sandbox.
pub type PeerStream = Box<dyn PeerIo>;

/// The operations of a connection to a peer.
pub trait PeerIo: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> PeerIo for T {}

/// The other members of a sandbox's group.
pub trait Peers: Send + Sync + 'static {
    /// Whether the group has a peer of this name.
    fn has(&self, name: &HostName) -> bool;

    /// Connects to `port` of the peer of this name.
    fn connect<'a>(&'a self, name: &'a HostName, port: u16) -> BoxFuture<'a, io::Result<PeerStream>>;

    /// A socket whose datagrams go to `port` of the peer of this name, and that receives its replies.
    fn datagrams(&self, name: &HostName, port: u16) -> io::Result<UnixDatagram>;
}

/// The addresses assigned to peers. An address is assigned when its name is first resolved.
pub(crate) struct PeerNames {
    group: RwLock<CurrentGroup>,
    network: Ipv4Net,
    given: Mutex<Vec<HostName>>,
}

/// The current group.
#[derive(Clone)]
struct CurrentGroup {
    peers: Option<Arc<dyn Peers>>,
    /// How often the group has changed.
    epoch: u64,
}

/// A peer behind an address. A peer with the same name in another group is a different peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Peer {
    pub name: HostName,
    epoch: u64,
}

impl PeerNames {
    pub fn new(peers: Option<Arc<dyn Peers>>, network: Ipv4Net) -> PeerNames {
        PeerNames { group: RwLock::new(CurrentGroup { peers, epoch: 0 }), network, given: Mutex::default() }
    }

    /// Replaces the group.
    pub fn set(&self, peers: Option<Arc<dyn Peers>>) {
        let mut group = self.group.write().unwrap_or_else(PoisonError::into_inner);
        *group = CurrentGroup { peers, epoch: group.epoch + 1 };
    }

    fn current(&self) -> CurrentGroup {
        self.group.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The address assigned to `name`.
    pub fn address(&self, name: &HostName) -> Option<Ipv4Addr> {
        let peers = self.current().peers?;
        if !peers.has(name) {
            return None;
        }
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = given.iter().position(|known| known == name) {
            return self.network.hosts().nth(place);
        }
        if let Some(address) = self.network.hosts().nth(given.len()) {
            given.push(name.clone());
            return Some(address);
        }
        // All addresses are assigned, so reuse one whose peer has left.
        let place = given.iter().position(|known| !peers.has(known))?;
        given[place] = name.clone();
        self.network.hosts().nth(place)
    }

    /// The peer behind `address`, while it is in the group.
    pub fn peer(&self, address: Ipv4Addr) -> Option<Peer> {
        if !self.network.contains(&address) {
            return None;
        }
        let CurrentGroup { peers, epoch } = self.current();
        let peers = peers?;
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let place = self.network.hosts().position(|host| host == address)?;
        given.get(place).filter(|name| peers.has(name)).map(|name| Peer { name: name.clone(), epoch })
    }

    /// Connects to a peer, if the group has not changed since.
    pub async fn connect(&self, peer: &Peer, port: u16) -> io::Result<PeerStream> {
        self.group_of(peer)?.connect(&peer.name, port).await
    }

    /// Opens a datagram socket to a peer, if the group has not changed since.
    pub fn datagrams(&self, peer: &Peer, port: u16) -> io::Result<UnixDatagram> {
        self.group_of(peer)?.datagrams(&peer.name, port)
    }

    fn group_of(&self, peer: &Peer) -> io::Result<Arc<dyn Peers>> {
        let CurrentGroup { peers, epoch } = self.current();
        peers.filter(|_| epoch == peer.epoch).ok_or(ErrorKind::HostUnreachable.into())
    }
}
