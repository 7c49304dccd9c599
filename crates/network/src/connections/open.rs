//! Handles a TCP segment: it belongs to a connection, opens one, or is answered with a reset.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::guest_dns;
use super::serve::{Upstream, run};
use crate::destination::{Destination, Refused, failure};
use crate::event::{Event, EventKind, Failure, Verdict};
use crate::flow::Flow;
use crate::frame::{self, Segment};
use crate::policy::Refusal;
use crate::session::Session;
use crate::shared::Shared;
use crate::tcp::{Connection, Place, Slot, host_buffer};

const DNS: u16 = 53;
/// Many proxies open tunnels to port 443 only, so plain HTTP is sent to the proxy without one.
const HTTP: u16 = 80;

/// Handles a TCP segment of the guest. `packet` is the whole IPv4 packet. Returns whether it was useful to an existing
/// connection.
pub(crate) fn segment(shared: &Arc<Shared>, segment: Segment, packet: &[u8]) -> bool {
    let flow = Flow::from(&segment);
    match shared.table.find(flow) {
        // The cable keeps the order of frames, so this is not a late copy of the first SYN. The guest was restored to a
        // moment before that connection, and uses its port again.
        Some(Some(connection)) if segment.opens && connection.is_established() => {
            shared.table.replace(flow, &connection);
            open(shared, segment, packet);
        }
        Some(Some(connection)) => return connection.feed(packet),
        Some(None) if segment.resets => shared.table.cancel(flow),
        // The guest repeats its SYN because the host has not answered yet.
        Some(None) => {}
        None if segment.opens => open(shared, segment, packet),
        None => reset(shared, packet),
    }
    false
}

fn reset(shared: &Shared, packet: &[u8]) {
    if let Some(frame) = frame::reset(&shared.link.ends, packet) {
        shared.link.send(frame);
    }
}

fn open(shared: &Arc<Shared>, segment: Segment, packet: &[u8]) {
    let (why, name) = match admit(shared, &segment) {
        Ok(destination) => return start(shared, &segment, packet, destination),
        Err(refused) => refused,
    };
    let event = Event::new(EventKind::Connect, Verdict::Refused(why)).of_name(name);
    let event = event.at_address(segment.to, Some(segment.to_port));
    // A guest that floods gets no reply, because a reply would only cause more packets.
    if why == Refusal::ConnectionRate {
        return shared.journal.sample(event);
    }
    shared.journal.write(event);
    reset(shared, packet);
}

/// Judges a request for a connection.
fn admit(shared: &Shared, segment: &Segment) -> Result<Destination, Refused> {
    let limits = shared.meters.limits();
    if shared.open() >= limits.connections {
        return Err((Refusal::Connections, None));
    }
    if shared.table.count().1 >= limits.connecting || !shared.meters.opening() {
        return Err((Refusal::ConnectionRate, None));
    }
    let (address, port) = (segment.to, segment.to_port);
    if address == shared.link.ends.gateway_address && port == DNS {
        return Ok(Destination { address, port, names: Vec::new(), peer: None });
    }
    shared.destination(address, port, |rules, names| rules.address(address, port, names).map(drop))
}

fn start(shared: &Arc<Shared>, segment: &Segment, packet: &[u8], destination: Destination) {
    let Some(place) = shared.table.insert(segment.into(), Slot::Opening(None)) else { return };
    let removed = RemoveOnDrop(shared.clone(), place);
    let packet = packet.to_vec();
    let task = tokio::spawn(async move { connect_and_run(&removed.0, place, &packet, destination).await });
    shared.table.opening(place, task.abort_handle());
}

/// Removes the connection from the table, however its task ends.
struct RemoveOnDrop(Arc<Shared>, Place);

impl Drop for RemoveOnDrop {
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
    let Some(connection) =
        Connection::accepting(&shared.link, destination.address, destination.port, shared.table.buffer())
    else {
        return reset(shared, syn);
    };
    let connection = Arc::new(connection);
    if !shared.table.opened(place, connection.clone()) {
        return;
    }
    let _ = connection.feed(syn);
    match upstream {
        Some(upstream) => run(Session::new(shared, connection, destination), upstream).await,
        None => guest_dns::serve(shared, connection).await,
    }
}

/// Connects to the host. None if the destination is the gateway itself.
async fn connect(shared: &Shared, destination: &Destination) -> Result<Option<Upstream>, Failure> {
    let (address, port) = (destination.address, destination.port);
    if address == shared.link.ends.gateway_address {
        return Ok(None);
    }
    if let Some(peer) = &destination.peer {
        let dialled = timeout(shared.meters.limits().connect, shared.peers.connect(peer, port)).await;
        return Ok(Some(Upstream::Peer(dialled.map_err(|_| Failure::TimedOut)?.map_err(|error| failure(&error))?)));
    }
    let dialling = async {
        Ok(match shared.proxy_to(destination) {
            Some((proxy, _)) if port == HTTP => Upstream::Proxy(proxy.dial().await?),
            Some((proxy, host)) => Upstream::Tcp(proxy.connect(&host, port).await?),
            None => Upstream::Tcp(dial_host(shared, SocketAddr::from((address, port))).await?),
        })
    };
    let dialled = timeout(shared.meters.limits().connect, dialling).await;
    dialled.map_err(|_| Failure::TimedOut)?.map(Some).map_err(|error: io::Error| {
        tracing::debug!(%error, %address, port, "cannot connect for a sandbox");
        failure(&error)
    })
}

async fn dial_host(shared: &Shared, address: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    // The kernel would give each of a thousand connections megabytes if the guest reads from none of them.
    if let Some(size) = host_buffer(shared.open()) {
        socket.set_recv_buffer_size(size)?;
        socket.set_send_buffer_size(size)?;
    }
    let stream = socket.connect(address).await?;
    let _ = stream.set_nodelay(true);
    Ok(stream)
}
