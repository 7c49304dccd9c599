//! All TCP connections of one guest.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::AbortHandle;

use super::connection::Connection;
use crate::flow::Flow;

/// This many connections get large buffers. Later ones get small buffers, so that a guest with very many connections
/// cannot use much of the host's memory. Small buffers suffice, because the link has almost no latency.
const LARGE_BUFFERS: usize = 64;
const LARGE: usize = 256 * 1024;
const SMALL: usize = 16 * 1024;
/// The kernel's buffer size in each direction for the connections with small buffers.
const SMALL_AT_HOST: u32 = 64 * 1024;

/// Identifies a connection, also among successive ones of the same flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    flow: Flow,
    number: u64,
}

/// The state of a connection.
pub enum Slot {
    /// The connection to the host is being opened, and the guest has no reply yet.
    Opening(Option<AbortHandle>),
    Open(Arc<Connection>),
}

/// All TCP connections of one guest.
#[derive(Default)]
pub struct Table(Mutex<Slots>);

#[derive(Default)]
struct Slots {
    by_flow: HashMap<Flow, (u64, Slot)>,
    opening: usize,
    next: u64,
    closed: bool,
}

/// The kernel's buffer size in each direction for the next connection, when `open` are open. None if the kernel
/// decides.
pub fn host_buffer(open: usize) -> Option<u32> {
    (open > LARGE_BUFFERS).then_some(SMALL_AT_HOST)
}

impl Table {
    /// The number of connections, and how many of them are being opened.
    pub fn count(&self) -> (usize, usize) {
        let slots = self.lock();
        (slots.by_flow.len(), slots.opening)
    }

    /// The buffer size of the next connection in each direction.
    pub fn buffer(&self) -> usize {
        if self.lock().by_flow.len() <= LARGE_BUFFERS { LARGE } else { SMALL }
    }

    /// The connection of this flow. The inner option is `None` while it is being opened.
    pub fn find(&self, flow: Flow) -> Option<Option<Arc<Connection>>> {
        self.lock().by_flow.get(&flow).map(|(_, slot)| match slot {
            Slot::Opening(_) => None,
            Slot::Open(connection) => Some(connection.clone()),
        })
    }

    /// The flows that the guest knows.
    pub fn flows(&self) -> Vec<Flow> {
        let slots = self.lock();
        let open = slots.by_flow.iter().filter(|(_, (_, slot))| matches!(slot, Slot::Open(_)));
        open.map(|(flow, _)| *flow).collect()
    }

    /// Adds a connection, unless the flow is in use or the table is closed.
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

    /// Sets the handle that cancels the opening of a connection, if it is still being opened.
    pub fn opening(&self, place: Place, handle: AbortHandle) {
        match self.lock().by_flow.get_mut(&place.flow) {
            Some((number, Slot::Opening(slot))) if *number == place.number => *slot = Some(handle),
            _ => {}
        }
    }

    /// Marks a connection as open. Returns false if its opening was cancelled.
    pub fn opened(&self, place: Place, connection: Arc<Connection>) -> bool {
        let mut slots = self.lock();
        match slots.by_flow.get_mut(&place.flow) {
            Some((number, slot @ Slot::Opening(_))) if *number == place.number => *slot = Slot::Open(connection),
            _ => return false,
        }
        slots.opening -= 1;
        true
    }

    /// Removes a connection, unless another one has taken its place.
    pub fn remove(&self, place: Place) {
        let mut slots = self.lock();
        if slots.by_flow.get(&place.flow).is_some_and(|(number, _)| *number == place.number) {
            slots.take(place.flow);
        }
    }

    /// Silently ends a connection whose flow is needed for another.
    pub fn replace(&self, flow: Flow, connection: &Connection) {
        self.lock().take(flow);
        connection.vanish();
    }

    /// Cancels the opening of a connection.
    pub fn cancel(&self, flow: Flow) {
        if let Some(Slot::Opening(Some(handle))) = self.lock().take(flow) {
            handle.abort();
        }
    }

    /// Resets all connections.
    pub fn reset(&self) {
        self.reset_those(|_| true);
    }

    /// Resets all connections, and prevents new ones.
    pub fn close(&self) {
        self.lock().closed = true;
        self.reset();
    }

    /// Whether new connections are prevented.
    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Whether the gateway has opened any connection from one of these ports of its own.
    pub fn has_dialled(&self, gateway: Ipv4Addr, ports: &Range<u16>) -> bool {
        self.lock().by_flow.keys().any(|flow| flow.address == gateway && ports.contains(&flow.port))
    }

    /// Resets the connections that the gateway opened from one of these ports of its own.
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
