//! What becomes of a TCP segment: it belongs to a connection, asks for one, or is answered with a reset.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::connection::Connection;
use super::guest_dns;
use super::session::{Session, Upstream};
use super::table::{Place, Slot, host_buffer};
use crate::destination::{Destination, Refused};
use crate::event::{Event, EventKind, Failure, Verdict};
use crate::flow::Flow;
use crate::frame::{self, Segment};
use crate::policy::Refusal;
use crate::shared::Shared;

const DNS: u16 = 53;

/// Takes in a TCP segment of the guest's; `packet` is the whole IPv4 packet. Answers whether it was of use to a
/// connection that there is.
pub(crate) fn segment(shared: &Arc<Shared>, segment: Segment, packet: &[u8]) -> bool {
    let flow = Flow::from(&segment);
    match shared.table.find(flow) {
        // The cable keeps the order, so this is no late twin of the first SYN: the guest was put back to a moment before
        // that connection, and its port is used anew.
        Some(Some(connection)) if segment.opens && connection.is_established() => {
            shared.table.replace(flow, &connection);
            open(shared, segment, packet);
        }
        Some(Some(connection)) => return connection.feed(packet),
        Some(None) if segment.resets => shared.table.cancel(flow),
        // The guest asks again because the host's side takes its time.
        Some(None) => {}
        None if segment.opens => open(shared, segment, packet),
        None => reset(shared, packet),
    }
    false
}

fn reset(shared: &Shared, packet: &[u8]) {
    if let Some(frame) = frame::reset(&shared.ends, packet) {
        shared.link.send(frame, &shared.journal.counters);
    }
}

fn open(shared: &Arc<Shared>, segment: Segment, packet: &[u8]) {
    let (why, name) = match admit(shared, &segment) {
        Ok(destination) => return start(shared, &segment, packet, destination),
        Err(refused) => refused,
    };
    let event = Event::new(EventKind::Connect, Verdict::Refused(why)).of_name(name);
    let event = event.at_address(segment.to, Some(segment.to_port));
    // A guest that floods is not answered: it would only flood more.
    if why == Refusal::ConnectionRate {
        return shared.journal.sample(event);
    }
    shared.journal.write(event);
    reset(shared, packet);
}

/// Judges a request for a connection.
fn admit(shared: &Shared, segment: &Segment) -> Result<Destination, Refused> {
    let limits = shared.limits();
    if shared.open() >= limits.connections {
        return Err((Refusal::Connections, None));
    }
    if shared.table.count().1 >= limits.connecting || !shared.meters.opening() {
        return Err((Refusal::ConnectionRate, None));
    }
    let (address, port) = (segment.to, segment.to_port);
    if address == shared.ends.gateway_address && port == DNS {
        return Ok(Destination { address, port, names: Vec::new(), peer: None });
    }
    Destination::judged(shared, address, port, |rules, names| rules.address(address, port, names).map(drop))
}

fn start(shared: &Arc<Shared>, segment: &Segment, packet: &[u8], destination: Destination) {
    let Some(place) = shared.table.insert(segment.into(), Slot::Opening(None)) else { return };
    let removed = Removed(shared.clone(), place);
    let packet = packet.to_vec();
    let task = tokio::spawn(async move { connect_and_run(&removed.0, place, &packet, destination).await });
    shared.table.opening(place, task.abort_handle());
}

/// Takes the connection out of the table however its task ends.
struct Removed(Arc<Shared>, Place);

impl Drop for Removed {
    fn drop(&mut self) {
        self.0.table.remove(self.1);
    }
}

async fn connect_and_run(shared: &Arc<Shared>, place: Place, syn: &[u8], destination: Destination) {
    let upstream = match connect(shared, &destination).await {
        Ok(upstream) => upstream,
        Err(why) => {
            let event = Event::new(EventKind::Connect, Verdict::Failed(why));
            let name = destination.only_name();
            shared.journal.write(event.of_name(name).at_address(destination.address, Some(destination.port)));
            return reset(shared, syn);
        }
    };
    let Some(connection) = Connection::accepting(shared, destination.address, destination.port) else {
        return reset(shared, syn);
    };
    let connection = Arc::new(connection);
    if !shared.table.opened(place, connection.clone()) {
        return;
    }
    let _ = connection.feed(syn);
    match upstream {
        Some(upstream) => Session::new(shared, connection, destination).run(upstream).await,
        None => guest_dns::serve(shared, connection).await,
    }
}

/// The host's side of a connection; nothing, if the gateway itself is meant.
async fn connect(shared: &Shared, destination: &Destination) -> Result<Option<Upstream>, Failure> {
    let (address, port) = (destination.address, destination.port);
    if address == shared.ends.gateway_address {
        return Ok(None);
    }
    if let Some(peer) = &destination.peer {
        let dialled = timeout(shared.limits().connect, shared.peers.connect(peer, port)).await;
        return Ok(Some(Upstream::Peer(dialled.map_err(|_| Failure::TimedOut)?.map_err(|error| failure(&error))?)));
    }
    let dialled = timeout(shared.limits().connect, dial_host(shared, SocketAddr::from((address, port)))).await;
    let stream = dialled.map_err(|_| Failure::TimedOut)?.map_err(|error| failure(&error))?;
    let _ = stream.set_nodelay(true);
    Ok(Some(Upstream::Tcp(stream)))
}

async fn dial_host(shared: &Shared, address: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    // The kernel would give each of a thousand connections megabytes, if the guest reads none of them.
    if let Some(size) = host_buffer(shared.open()) {
        socket.set_recv_buffer_size(size)?;
        socket.set_send_buffer_size(size)?;
    }
    socket.connect(address).await
}

/// What an error of a socket means.
pub(crate) fn failure(error: &io::Error) -> Failure {
    match error.kind() {
        ErrorKind::ConnectionRefused => Failure::ConnectionRefused,
        ErrorKind::TimedOut => Failure::TimedOut,
        ErrorKind::ConnectionReset => Failure::Reset,
        _ => Failure::Unreachable,
    }
}
