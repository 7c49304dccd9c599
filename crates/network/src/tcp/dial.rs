//! Connections towards the guest, as its peers open them.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::connection::Connection;
use super::stream::GuestStream;
use super::table::{Key, Place, Slot};
use crate::shared::Shared;

/// Ports from which the gateway connects to the guest.
const OWN_PORTS: std::ops::Range<u16> = 32_768..61_000;
/// How long a connection that nobody holds any more may take to end.
const LINGER: Duration = Duration::from_secs(10);

static NEXT: AtomicU16 = AtomicU16::new(0);

/// Opens a connection to `port` of the guest.
pub(crate) async fn dial(shared: &Arc<Shared>, port: u16) -> io::Result<GuestStream> {
    if shared.table.count().0 >= shared.limits().connections {
        return Err(ErrorKind::QuotaExceeded.into());
    }
    let (place, connection) = find_place(shared, port).ok_or(ErrorKind::AddrInUse)?;
    let (dropped, when_dropped) = oneshot::channel();
    tokio::spawn(keep(shared.clone(), place, connection.clone(), when_dropped));
    let stream = GuestStream::dialled(connection.clone(), dropped);
    timeout(shared.limits().connect, connection.established()).await.map_err(|_| ErrorKind::TimedOut)??;
    Ok(stream)
}

fn find_place(shared: &Arc<Shared>, port: u16) -> Option<(Place, Arc<Connection>)> {
    for _ in OWN_PORTS {
        let own = OWN_PORTS.start + NEXT.fetch_add(1, Ordering::Relaxed) % (OWN_PORTS.end - OWN_PORTS.start);
        let key = Key::dialled(shared.ends.gateway_address, port, own);
        let connection = Arc::new(Connection::dialling(shared, port, own)?);
        if let Some(place) = shared.table.insert(key, Slot::Open(connection.clone())) {
            return Some((place, connection));
        }
    }
    None
}

async fn keep(shared: Arc<Shared>, place: Place, connection: Arc<Connection>, dropped: oneshot::Receiver<()>) {
    tokio::select! {
        () = connection.drive() => {}
        _ = dropped => {
            connection.finish();
            connection.over(LINGER).await;
        }
    }
    connection.abort();
    shared.table.remove(place);
}
