//! All connections of one guest, by its port and the other end's address and port.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::AbortHandle;

use super::connection::Connection;
use crate::flow::Flow;

/// Connections that get large buffers; all further ones get small ones, so that a guest with very many of them cannot
/// take much of the host's memory. A small one is still enough: the cable is short.
const LARGE_BUFFERS: usize = 64;
const LARGE: usize = 256 * 1024;
const SMALL: usize = 16 * 1024;
/// What the kernel may hold each way for those further ones.
const SMALL_AT_HOST: u32 = 64 * 1024;

/// What tells one connection from the next one between the same ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    flow: Flow,
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
    by_flow: HashMap<Flow, (u64, Slot)>,
    opening: usize,
    next: u64,
    closed: bool,
}

/// How many bytes the host's kernel may hold each way for the next connection where so many are open; nothing, if it
/// decides itself.
pub fn host_buffer(open: usize) -> Option<u32> {
    (open > LARGE_BUFFERS).then_some(SMALL_AT_HOST)
}

impl Table {
    /// How many there are, and how many of them are being opened.
    pub fn count(&self) -> (usize, usize) {
        let slots = self.lock();
        (slots.by_flow.len(), slots.opening)
    }

    /// How many bytes the next connection may hold each way.
    pub fn buffer(&self) -> usize {
        if self.lock().by_flow.len() <= LARGE_BUFFERS { LARGE } else { SMALL }
    }

    /// The connection, if it is open; `None` inside if it is being opened.
    pub fn find(&self, flow: Flow) -> Option<Option<Arc<Connection>>> {
        self.lock().by_flow.get(&flow).map(|(_, slot)| match slot {
            Slot::Opening(_) => None,
            Slot::Open(connection) => Some(connection.clone()),
        })
    }

    /// Those that the guest knows of.
    pub fn flows(&self) -> Vec<Flow> {
        let slots = self.lock();
        let open = slots.by_flow.iter().filter(|(_, (_, slot))| matches!(slot, Slot::Open(_)));
        open.map(|(flow, _)| *flow).collect()
    }

    /// Puts a connection in place, if there is none between these ends and there may be more.
    pub fn insert(&self, flow: Flow, slot: Slot) -> Option<Place> {
        let mut slots = self.lock();
        if slots.closed || slots.by_flow.contains_key(&flow) {
            return None;
        }
        slots.next += 1;
        slots.opening += usize::from(matches!(slot, Slot::Opening(_)));
        let number = slots.next;
        slots.by_flow.insert(flow, (number, slot));
        Some(Place { flow, number })
    }

    /// Notes what ends the opening of a connection, if it is still being opened.
    pub fn opening(&self, place: Place, handle: AbortHandle) {
        match self.lock().by_flow.get_mut(&place.flow) {
            Some((number, Slot::Opening(slot))) if *number == place.number => *slot = Some(handle),
            _ => {}
        }
    }

    /// A connection that was being opened is open now; false, if it was given up meanwhile.
    pub fn opened(&self, place: Place, connection: Arc<Connection>) -> bool {
        let mut slots = self.lock();
        match slots.by_flow.get_mut(&place.flow) {
            Some((number, slot @ Slot::Opening(_))) if *number == place.number => *slot = Slot::Open(connection),
            _ => return false,
        }
        slots.opening -= 1;
        true
    }

    /// Forgets a connection, if it is still this one.
    pub fn remove(&self, place: Place) {
        let mut slots = self.lock();
        if slots.by_flow.get(&place.flow).is_some_and(|(number, _)| *number == place.number) {
            slots.take(place.flow);
        }
    }

    /// Ends a connection whose ends are needed for another.
    pub fn replace(&self, flow: Flow, connection: &Connection) {
        self.lock().take(flow);
        connection.vanish();
    }

    /// Gives up a connection that is being opened.
    pub fn cancel(&self, flow: Flow) {
        if let Some(Slot::Opening(Some(handle))) = self.lock().take(flow) {
            handle.abort();
        }
    }

    /// Resets all connections.
    pub fn reset(&self) {
        self.reset_those(|_| true);
    }

    /// Resets all connections, and lets none begin any more.
    pub fn close(&self) {
        self.lock().closed = true;
        self.reset();
    }

    /// Whether none may begin any more.
    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Whether there are any that the gateway opened from one of these ports of its own.
    pub fn has_dialled(&self, gateway: Ipv4Addr, ports: &Range<u16>) -> bool {
        self.lock().by_flow.keys().any(|flow| flow.address == gateway && ports.contains(&flow.port))
    }

    /// Resets those that the gateway opened from one of these ports of its own.
    pub fn reset_dialled(&self, gateway: Ipv4Addr, ports: &Range<u16>) {
        self.reset_those(|flow| flow.address == gateway && ports.contains(&flow.port));
    }

    fn reset_those(&self, chosen: impl Fn(&Flow) -> bool) {
        let slots: Vec<Slot> = {
            let mut slots = self.lock();
            let flows: Vec<Flow> = slots.by_flow.keys().copied().filter(chosen).collect();
            flows.into_iter().filter_map(|flow| slots.take(flow)).collect()
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
    fn take(&mut self, flow: Flow) -> Option<Slot> {
        let (_, slot) = self.by_flow.remove(&flow)?;
        self.opening -= usize::from(matches!(slot, Slot::Opening(_)));
        Some(slot)
    }
}
