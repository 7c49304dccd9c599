//! Connections to the guest that its peers open.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::event::{Event, EventKind, Failure, Verdict};
use crate::flow::{Flow, OWN_PORTS};
use crate::name::HostName;
use crate::policy::Refusal;
use crate::shared::Shared;
use crate::tcp::{Connection, GuestStream, Place, Slot};

/// How long a connection may take to end after its stream is dropped.
const LINGER: Duration = Duration::from_secs(10);

/// Opens a connection to `port` of the guest for its peer `from`.
pub(crate) async fn dial(shared: &Arc<Shared>, port: u16, from: &HostName) -> io::Result<GuestStream> {
    let note = |verdict| {
        let event = Event::new(EventKind::Accept, verdict).of_name(Some(from.clone()));
        shared.journal.write(event.at_address(shared.link.ends.guest_address, Some(port)));
    };
    if !shared.admits_peer() {
        note(Verdict::Refused(Refusal::Connections));
        return Err(ErrorKind::QuotaExceeded.into());
    }
    let (place, connection) = find_place(shared, port).ok_or(ErrorKind::AddrInUse)?;
    shared.serves_now();
    let (dropped, when_dropped) = oneshot::channel();
    tokio::spawn(keep(shared.clone(), place, connection.clone(), when_dropped));
    let stream = GuestStream::dialled(connection.clone(), shared.traffic(), dropped);
    match timeout(shared.meters.limits().connect, connection.established()).await {
        Ok(Ok(())) => note(Verdict::Allowed),
        Ok(Err(error)) => {
            note(Verdict::Failed(Failure::ConnectionRefused));
            return Err(error);
        }
        Err(_) => {
            note(Verdict::Failed(Failure::TimedOut));
            return Err(ErrorKind::TimedOut.into());
        }
    }
    Ok(stream)
}

/// Resets the connections that peers have to the guest.
pub(crate) fn hang_up(shared: &Shared) {
    shared.table.reset_dialled(shared.link.ends.gateway_address, &OWN_PORTS);
}

fn find_place(shared: &Arc<Shared>, port: u16) -> Option<(Place, Arc<Connection>)> {
    for _ in OWN_PORTS {
        if shared.table.is_closed() {
            return None;
        }
        let flow = Flow::next_own(shared.link.ends.gateway_address, port);
        let connection = Arc::new(Connection::dialling(&shared.link, port, flow.port, shared.table.buffer())?);
        if let Some(place) = shared.table.insert(flow, Slot::Open(connection.clone())) {
            return Some((place, connection));
        }
    }
    None
}

async fn keep(shared: Arc<Shared>, place: Place, connection: Arc<Connection>, dropped: oneshot::Receiver<()>) {
    tokio::select! {
        () = connection.drive() => {}
        // A stream that was dropped midway must not look complete, so only a finished one ends without a reset.
        _ = dropped => if connection.is_finished() {
            connection.over(LINGER).await;
        },
    }
    connection.abort();
    shared.table.remove(place);
    shared.serves_now();
}
