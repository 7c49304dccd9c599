//! All connections of one guest, by its port and the other end's address and port.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::task::AbortHandle;

use super::connection::Connection;
use crate::frame::Segment;

/// Connections that get large buffers; all further ones get small ones, so that a guest with very many of them cannot
/// take much of the host's memory. A small one is still enough: the cable is short.
const LARGE_BUFFERS: usize = 64;
const LARGE: usize = 256 * 1024;
const SMALL: usize = 16 * 1024;
/// What the kernel may hold each way for those further ones.
const SMALL_AT_HOST: u32 = 64 * 1024;

/// What tells one connection from another, for the guest's next gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Flow {
    pub guest_port: u16,
    pub address: Ipv4Addr,
    pub port: u16,
}

/// What tells one connection from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    guest_port: u16,
    address: Ipv4Addr,
    port: u16,
}

/// What tells one connection from the next one with the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    key: Key,
    number: u64,
}

/// What is known about a connection.
pub enum Slot {
    /// The host's side is being opened; the guest was not answered yet.
    Opening(Option<AbortHandle>),
    Open(Arc<Connection>),
}

/// All connections of one guest.
#[derive(Default)]
pub struct Table(Mutex<Slots>);

#[derive(Default)]
struct Slots {
    by_key: HashMap<Key, (u64, Slot)>,
    opening: usize,
    next: u64,
}

/// How many bytes the host's kernel may hold each way for the next connection where so many are open; nothing, if it
/// decides itself.
pub fn host_buffer(open: usize) -> Option<u32> {
    (open > LARGE_BUFFERS).then_some(SMALL_AT_HOST)
}

impl Key {
    /// The connection that a segment belongs to.
    pub fn of(segment: &Segment) -> Key {
        Key { guest_port: segment.from_port, address: segment.to, port: segment.to_port }
    }

    /// The connection from the gateway's own `from_port` to the guest's `port`.
    pub fn dialled(gateway: Ipv4Addr, port: u16, from_port: u16) -> Key {
        Key { guest_port: port, address: gateway, port: from_port }
    }
}

impl Table {
    /// How many there are, and how many of them are being opened.
    pub fn count(&self) -> (usize, usize) {
        let slots = self.lock();
        (slots.by_key.len(), slots.opening)
    }

    /// How many bytes the next connection may hold each way.
    pub fn buffer(&self) -> usize {
        if self.lock().by_key.len() <= LARGE_BUFFERS { LARGE } else { SMALL }
    }

    /// The connection, if it is open; `None` inside if it is being opened.
    pub fn find(&self, key: Key) -> Option<Option<Arc<Connection>>> {
        self.lock().by_key.get(&key).map(|(_, slot)| match slot {
            Slot::Opening(_) => None,
            Slot::Open(connection) => Some(connection.clone()),
        })
    }

    /// Those that the guest knows of.
    pub fn flows(&self) -> Vec<Flow> {
        let slots = self.lock();
        let open = slots.by_key.iter().filter(|(_, (_, slot))| matches!(slot, Slot::Open(_)));
        open.map(|(key, _)| Flow { guest_port: key.guest_port, address: key.address, port: key.port }).collect()
    }

    /// Puts a connection in place, if there is none with that key.
    pub fn insert(&self, key: Key, slot: Slot) -> Option<Place> {
        let mut slots = self.lock();
        if slots.by_key.contains_key(&key) {
            return None;
        }
        slots.next += 1;
        slots.opening += usize::from(matches!(slot, Slot::Opening(_)));
        let number = slots.next;
        slots.by_key.insert(key, (number, slot));
        Some(Place { key, number })
    }

    /// Notes what ends the opening of a connection, if it is still being opened.
    pub fn opening(&self, place: Place, handle: AbortHandle) {
        match self.lock().by_key.get_mut(&place.key) {
            Some((number, Slot::Opening(slot))) if *number == place.number => *slot = Some(handle),
            _ => {}
        }
    }

    /// A connection that was being opened is open now; false, if it was given up meanwhile.
    pub fn opened(&self, place: Place, connection: Arc<Connection>) -> bool {
        let mut slots = self.lock();
        match slots.by_key.get_mut(&place.key) {
            Some((number, slot @ Slot::Opening(_))) if *number == place.number => *slot = Slot::Open(connection),
            _ => return false,
        }
        slots.opening -= 1;
        true
    }

    /// Forgets a connection, if it is still this one.
    pub fn remove(&self, place: Place) {
        let mut slots = self.lock();
        if slots.by_key.get(&place.key).is_some_and(|(number, _)| *number == place.number) {
            slots.take(place.key);
        }
    }

    /// Ends a connection whose key is needed for another.
    pub fn replace(&self, key: Key, connection: &Connection) {
        self.lock().take(key);
        connection.vanish();
    }

    /// Gives up a connection that is being opened.
    pub fn cancel(&self, key: Key) {
        if let Some(Slot::Opening(Some(handle))) = self.lock().take(key) {
            handle.abort();
        }
    }

    /// Resets all connections.
    pub fn reset(&self) {
        self.reset_those(|_| true);
    }

    /// Resets those that the gateway opened from one of these ports of its own.
    pub fn reset_dialled(&self, gateway: Ipv4Addr, ports: &Range<u16>) {
        self.reset_those(|key| key.address == gateway && ports.contains(&key.port));
    }

    fn reset_those(&self, chosen: impl Fn(&Key) -> bool) {
        let slots: Vec<Slot> = {
            let mut slots = self.lock();
            let keys: Vec<Key> = slots.by_key.keys().copied().filter(chosen).collect();
            keys.into_iter().filter_map(|key| slots.take(key)).collect()
        };
        for slot in slots {
            match slot {
                Slot::Opening(Some(handle)) => handle.abort(),
                Slot::Opening(None) => {}
                Slot::Open(connection) => connection.abort(),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slots {
    fn take(&mut self, key: Key) -> Option<Slot> {
        let (_, slot) = self.by_key.remove(&key)?;
        self.opening -= usize::from(matches!(slot, Slot::Opening(_)));
        Some(slot)
    }
}
