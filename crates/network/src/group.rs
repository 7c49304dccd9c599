//! Groups of sandboxes on one host, connected by their gateways.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use futures_util::future::BoxFuture;
use tokio::net::UnixDatagram;

use crate::gateway::GatewayHandle;
use crate::name::HostName;
use crate::peers::{PeerStream, Peers};
use crate::shared::Shared;
use crate::{connections, datagrams};

/// A named group of sandboxes on this host.
#[derive(Default)]
pub struct Group(Mutex<HashMap<HostName, Weak<Shared>>>);

/// A member's view of its group.
pub struct Member {
    group: Arc<Group>,
    /// The name that the other members use for this one.
    own: HostName,
}

impl Group {
    /// An empty group. Give each gateway a [`Member`], then call `join` for it.
    pub fn new() -> Arc<Group> {
        Arc::default()
    }

    /// Lets the other members reach this sandbox by `name`. Returns false if another sandbox has that name.
    pub fn join(&self, name: HostName, gateway: &GatewayHandle) -> bool {
        let shared = gateway.shared();
        let mut members = self.lock();
        if members.get(&name).and_then(Weak::upgrade).is_some_and(|other| !Arc::ptr_eq(&other, shared)) {
            return false;
        }
        members.insert(name, Arc::downgrade(shared));
        true
    }

    /// Removes a member, and resets the connections that others have to it.
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

    fn lock(&self) -> MutexGuard<'_, HashMap<HostName, Weak<Shared>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Member {
    /// The view of the member called `own`.
    pub fn new(group: Arc<Group>, own: HostName) -> Arc<Member> {
        Arc::new(Member { group, own })
    }

    /// Whether `member` still has this name. It may have left, and reset its connections, before the new one was
    /// registered.
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
            let stream = connections::dial(&member, port, &self.own).await?;
            if !self.has_still(name, &member) {
                return Err(ErrorKind::HostUnreachable.into());
            }
            Ok(Box::new(stream) as PeerStream)
        })
    }

    fn datagrams(&self, name: &HostName, port: u16) -> io::Result<UnixDatagram> {
        let member = self.group.member(name).ok_or(ErrorKind::HostUnreachable)?;
        let end = datagrams::dial(&member, port, &self.own)?;
        if !self.has_still(name, &member) {
            return Err(ErrorKind::HostUnreachable.into());
        }
        Ok(end)
    }
}
