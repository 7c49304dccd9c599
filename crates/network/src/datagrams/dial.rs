//! Exchanges with the guest that its peers start.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use tokio::net::UnixDatagram;

use super::carry::start;
use crate::event::{Event, EventKind, Verdict};
use crate::flow::{Flow, OWN_PORTS};
use crate::name::HostName;
use crate::policy::Refusal;
use crate::shared::Shared;
use crate::udp::{Exchange, RemoteEnd};

/// Starts an exchange with `port` of the guest for its peer `from`. Returns the peer's end.
pub(crate) fn dial(shared: &Arc<Shared>, port: u16, from: &HostName) -> io::Result<UnixDatagram> {
    let note = |verdict| {
        let event = Event::new(EventKind::Accept, verdict).of_datagrams().of_name(Some(from.clone()));
        shared.journal.write(event.at_address(shared.link.ends.guest_address, Some(port)));
    };
    if !shared.admits_peer() {
        note(Verdict::Refused(Refusal::Connections));
        return Err(ErrorKind::QuotaExceeded.into());
    }
    let mut flows = OWN_PORTS.map(|_| Flow::next_own(shared.link.ends.gateway_address, port));
    let flow = flows.find(|flow| shared.exchanges.find(flow).is_none()).ok_or(ErrorKind::AddrInUse)?;
    let (own, theirs) = UnixDatagram::pair()?;
    let exchange = Exchange::new(flow, RemoteEnd::Peer(own), None, shared.traffic(), shared.rules.subscribe());
    if !start(shared, &Arc::new(exchange)) {
        return Err(ErrorKind::AddrInUse.into());
    }
    shared.serves_now();
    note(Verdict::Allowed);
    Ok(theirs)
}

/// Ends the exchanges that peers have with the guest.
pub(crate) fn hang_up(shared: &Shared) {
    shared.exchanges.reset_dialled();
}
