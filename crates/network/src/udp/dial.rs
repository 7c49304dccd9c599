//! Exchanges with the guest that its peers begin.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use tokio::net::UnixDatagram;

use super::exchange::Exchange;
use super::far::Far;
use super::table;
use crate::event::{Event, EventKind, Verdict};
use crate::name::HostName;
use crate::policy::Refusal;
use crate::shared::Shared;
use crate::tcp::{Flow, OWN_PORTS};

static NEXT: AtomicU16 = AtomicU16::new(0);

/// Begins an exchange with `port` of the guest for its peer `from`, who gets the other end of it.
pub(crate) fn dial(shared: &Arc<Shared>, port: u16, from: &HostName) -> io::Result<UnixDatagram> {
    let note = |verdict| {
        let event = Event::new(EventKind::Accept, verdict).of_datagrams().of_name(Some(from.clone()));
        shared.journal.write(event.at_address(shared.ends.guest_address, Some(port)));
    };
    if shared.open() >= shared.limits().connections || !shared.meters.opening() {
        note(Verdict::Refused(Refusal::Connections));
        return Err(ErrorKind::QuotaExceeded.into());
    }
    let own_port = free_port(shared, port).ok_or(ErrorKind::AddrInUse)?;
    let flow = Flow { guest_port: port, address: shared.ends.gateway_address, port: own_port };
    let (own, theirs) = UnixDatagram::pair()?;
    if !table::keep(shared, &Arc::new(Exchange::new(shared, flow, Far::Peer(own), None))) {
        return Err(ErrorKind::AddrInUse.into());
    }
    note(Verdict::Allowed);
    Ok(theirs)
}

/// Ends the exchanges that its peers have with the guest.
pub(crate) fn hang_up(shared: &Shared) {
    shared.exchanges.reset_dialled();
}

/// A port of the gateway's from which nobody has one with `port` of the guest.
fn free_port(shared: &Shared, port: u16) -> Option<u16> {
    let address = shared.ends.gateway_address;
    let next = || OWN_PORTS.start + NEXT.fetch_add(1, Ordering::Relaxed) % (OWN_PORTS.end - OWN_PORTS.start);
    let is_free = |own: &u16| shared.exchanges.find(&Flow { guest_port: port, address, port: *own }).is_none();
    OWN_PORTS.map(|_| next()).find(is_free)
}
