//! Sandboxes of one group see each other by name.
//!
//! A peer's name resolves to an address of the gateway's own choosing; a connection there is handed to `Peers`, which
//! opens one into the other sandbox. No frame ever passes from one guest to another.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use futures_util::future::BoxFuture;
use ipnet::Ipv4Net;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixDatagram;

use crate::gateway::GatewayHandle;
use crate::name::HostName;
use crate::shared::Shared;
use crate::tcp::dial;
use crate::udp;

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

    /// What is sent here goes to `port` of the peer of this name, each datagram for itself, and its answers come out.
    fn datagrams(&self, name: &HostName, port: u16) -> io::Result<UnixDatagram>;
}

/// The addresses that stand for peers, given out as names are asked for.
pub(crate) struct PeerNames {
    among: RwLock<Among>,
    network: Ipv4Net,
    given: Mutex<Vec<HostName>>,
}

/// Those whom it is among.
#[derive(Clone)]
struct Among {
    peers: Option<Arc<dyn Peers>>,
    /// How often they were others before.
    epoch: u64,
}

/// One whom an address stands for. Whoever has the same name among others is another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Peer {
    pub name: HostName,
    epoch: u64,
}

impl PeerNames {
    pub fn new(peers: Option<Arc<dyn Peers>>, network: Ipv4Net) -> PeerNames {
        PeerNames { among: RwLock::new(Among { peers, epoch: 0 }), network, given: Mutex::default() }
    }

    /// Others are its peers from now on.
    pub fn set(&self, peers: Option<Arc<dyn Peers>>) {
        let mut among = self.among.write().unwrap_or_else(PoisonError::into_inner);
        *among = Among { peers, epoch: among.epoch + 1 };
    }

    fn among(&self) -> Among {
        self.among.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The address that stands for `name`.
    pub fn address(&self, name: &HostName) -> Option<Ipv4Addr> {
        let peers = self.among().peers?;
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
        // All were given out; one that stands for nobody any more is given out again.
        let place = given.iter().position(|known| !peers.has(known))?;
        given[place] = name.clone();
        self.network.hosts().nth(place)
    }

    /// The peer that `address` stands for, while it is one.
    pub fn peer(&self, address: Ipv4Addr) -> Option<Peer> {
        if !self.network.contains(&address) {
            return None;
        }
        let Among { peers, epoch } = self.among();
        let peers = peers?;
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let place = self.network.hosts().position(|host| host == address)?;
        given.get(place).filter(|name| peers.has(name)).map(|name| Peer { name: name.clone(), epoch })
    }

    /// Connects to a peer, if it still is one.
    pub async fn connect(&self, peer: &Peer, port: u16) -> io::Result<PeerStream> {
        match self.among() {
            Among { peers: Some(peers), epoch } if epoch == peer.epoch => peers.connect(&peer.name, port).await,
            _ => Err(ErrorKind::HostUnreachable.into()),
        }
    }

    /// The same for datagrams.
    pub fn datagrams(&self, peer: &Peer, port: u16) -> io::Result<UnixDatagram> {
        match self.among() {
            Among { peers: Some(peers), epoch } if epoch == peer.epoch => peers.datagrams(&peer.name, port),
            _ => Err(ErrorKind::HostUnreachable.into()),
        }
    }
}

/// A named group of sandboxes on this host.
#[derive(Default)]
pub struct Group(Mutex<HashMap<HostName, Weak<Shared>>>);

/// One of a group, who sees the others.
pub struct Member {
    group: Arc<Group>,
    /// What the others see it as.
    own: HostName,
}

impl Group {
    /// A group without members. Hand [`Member`]s to the gateways of its members, then let them join.
    pub fn new() -> Arc<Group> {
        Arc::default()
    }

    /// Lets the others reach this sandbox by `name`; false if somebody else has it.
    pub fn join(&self, name: HostName, gateway: &GatewayHandle) -> bool {
        let shared = gateway.shared();
        let mut members = self.lock();
        if members.get(&name).and_then(Weak::upgrade).is_some_and(|other| !Arc::ptr_eq(&other, shared)) {
            return false;
        }
        members.insert(name, Arc::downgrade(shared));
        true
    }

    /// The others no longer reach it by that name; connections of theirs that did are reset.
    pub fn leave(&self, name: &HostName) {
        let others: Vec<_> = {
            let mut members = self.lock();
            members.remove(name);
            members.retain(|_, member| member.strong_count() > 0);
            members.values().filter_map(Weak::upgrade).collect()
        };
        for other in others {
            other.judge_again();
        }
    }

    fn member(&self, name: &HostName) -> Option<Arc<Shared>> {
        self.lock().get(name).and_then(Weak::upgrade)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<HostName, Weak<Shared>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Member {
    /// Whoever the others see as `own`.
    pub fn new(group: Arc<Group>, own: HostName) -> Arc<Member> {
        Arc::new(Member { group, own })
    }

    /// Whether it is still the one of this name: whoever left may have reset its connections before there was another.
    fn has_still(&self, name: &HostName, member: &Arc<Shared>) -> bool {
        self.group.member(name).is_some_and(|now| Arc::ptr_eq(&now, member))
    }
}

impl Peers for Member {
    fn has(&self, name: &HostName) -> bool {
        self.group.member(name).is_some()
    }

    fn connect<'a>(&'a self, name: &'a HostName, port: u16) -> BoxFuture<'a, io::Result<PeerStream>> {
        Box::pin(async move {
            let member = self.group.member(name).ok_or(ErrorKind::HostUnreachable)?;
            let stream = dial(&member, port, &self.own).await?;
            if !self.has_still(name, &member) {
                return Err(ErrorKind::HostUnreachable.into());
            }
            Ok(Box::new(stream) as PeerStream)
        })
    }

    fn datagrams(&self, name: &HostName, port: u16) -> io::Result<UnixDatagram> {
        let member = self.group.member(name).ok_or(ErrorKind::HostUnreachable)?;
        let end = udp::dial(&member, port, &self.own)?;
        if !self.has_still(name, &member) {
            return Err(ErrorKind::HostUnreachable.into());
        }
        Ok(end)
    }
}
