//! Exchanges with the guest that its peers begin.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use tokio::net::UnixDatagram;

use super::exchange::Exchange;
use super::far::Far;
use super::table;
use crate::event::{Event, EventKind, Verdict};
use crate::flow::{Flow, OWN_PORTS};
use crate::name::HostName;
use crate::policy::Refusal;
use crate::shared::Shared;

/// Begins an exchange with `port` of the guest for its peer `from`, who gets the other end of it.
pub(crate) fn dial(shared: &Arc<Shared>, port: u16, from: &HostName) -> io::Result<UnixDatagram> {
    let note = |verdict| {
        let event = Event::new(EventKind::Accept, verdict).of_datagrams().of_name(Some(from.clone()));
        shared.journal.write(event.at_address(shared.ends.guest_address, Some(port)));
    };
    if !shared.admits_peer() {
        note(Verdict::Refused(Refusal::Connections));
        return Err(ErrorKind::QuotaExceeded.into());
    }
    let mut flows = OWN_PORTS.map(|_| Flow::next_own(shared.ends.gateway_address, port));
    let flow = flows.find(|flow| shared.exchanges.find(flow).is_none()).ok_or(ErrorKind::AddrInUse)?;
    let (own, theirs) = UnixDatagram::pair()?;
    if !table::keep(shared, &Arc::new(Exchange::new(shared, flow, Far::Peer(own), None))) {
        return Err(ErrorKind::AddrInUse.into());
    }
    shared.serves_now();
    note(Verdict::Allowed);
    Ok(theirs)
}

/// Ends the exchanges that its peers have with the guest.
pub(crate) fn hang_up(shared: &Shared) {
    shared.exchanges.reset_dialled();
}
