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
    peers: RwLock<Option<Arc<dyn Peers>>>,
    network: Ipv4Net,
    given: Mutex<Vec<HostName>>,
}

impl PeerNames {
    pub fn new(peers: Option<Arc<dyn Peers>>, network: Ipv4Net) -> PeerNames {
        PeerNames { peers: RwLock::new(peers), network, given: Mutex::default() }
    }

    /// Others are its peers from now on.
    pub fn set(&self, peers: Option<Arc<dyn Peers>>) {
        *self.peers.write().unwrap_or_else(PoisonError::into_inner) = peers;
    }

    fn peers(&self) -> Option<Arc<dyn Peers>> {
        self.peers.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The address that stands for `name`.
    pub fn address(&self, name: &HostName) -> Option<Ipv4Addr> {
        let peers = self.peers()?;
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
    pub fn name(&self, address: Ipv4Addr) -> Option<HostName> {
        if !self.network.contains(&address) {
            return None;
        }
        let peers = self.peers()?;
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let place = self.network.hosts().position(|host| host == address)?;
        given.get(place).filter(|name| peers.has(name)).cloned()
    }

    /// Connects to the peer that `address` stands for.
    pub async fn connect(&self, address: Ipv4Addr, port: u16) -> io::Result<PeerStream> {
        let (Some(name), Some(peers)) = (self.name(address), self.peers()) else {
            return Err(ErrorKind::HostUnreachable.into());
        };
        peers.connect(&name, port).await
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
}

impl Peers for Member {
    fn has(&self, name: &HostName) -> bool {
        self.group.member(name).is_some()
    }

    fn connect<'a>(&'a self, name: &'a HostName, port: u16) -> BoxFuture<'a, io::Result<PeerStream>> {
        Box::pin(async move {
            let member = self.group.member(name).ok_or(ErrorKind::HostUnreachable)?;
            Ok(Box::new(dial(&member, port, &self.own).await?) as PeerStream)
        })
    }
}
