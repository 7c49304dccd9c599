//! The far side of an exchange: a socket of the host's, or the gateway of a peer.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket as StdSocket};

use rustix::net::SendFlags;
use tokio::io::Interest;
use tokio::net::{UdpSocket, UnixDatagram};

use crate::destination::Destination;
use crate::shared::Shared;
use crate::tcp::host_buffer;

/// The far side of an exchange.
pub(crate) enum Far {
    /// Connected to this address, so that others' datagrams do not come in.
    Host(UdpSocket, SocketAddr),
    /// One end of a pair; another gateway has the other.
    Peer(UnixDatagram),
}

impl Far {
    /// Opens it. Nothing is sent, so nothing has to be waited for.
    pub fn open(shared: &Shared, to: &Destination) -> io::Result<Far> {
        if let Some(peer) = &to.peer {
            return shared.peers.datagrams(peer, to.port).map(Far::Peer);
        }
        let socket = StdSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        let peer = SocketAddr::from((to.address, to.port));
        socket.connect(peer)?;
        socket.set_nonblocking(true)?;
        // Many sockets that nobody reads must not hold much of the kernel's memory.
        if let Some(size) = host_buffer(shared.open()) {
            rustix::net::sockopt::set_socket_recv_buffer_size(&socket, size as usize)?;
        }
        Ok(Far::Host(UdpSocket::from_std(socket)?, peer))
    }

    /// Sends a datagram now or never.
    pub fn send(&self, data: &[u8]) -> io::Result<()> {
        // Not by tokio's own call, which sends nothing before it has heard of the socket once.
        let sent = match self {
            Far::Host(socket, _) => rustix::net::send(socket, data, SendFlags::DONTWAIT),
            Far::Peer(socket) => rustix::net::send(socket, data, SendFlags::DONTWAIT),
        };
        Ok(sent.map(drop)?)
    }

    /// Waits until there may be something to receive.
    pub async fn readable(&self) -> io::Result<()> {
        match self {
            Far::Host(socket, _) => socket.ready(Interest::READABLE | Interest::ERROR).await.map(drop),
            Far::Peer(socket) => socket.readable().await,
        }
    }

    /// Receives a datagram if one is there. What is longer than `room` is cut.
    pub fn receive(&self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Far::Host(socket, peer) => match socket.try_recv_from(room) {
                Ok((count, from)) if from == *peer => Ok(count),
                // Somebody else's, from the moment before the socket was connected.
                Ok(_) => Err(ErrorKind::InvalidData.into()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => said(socket),
                Err(error) => Err(error),
            },
            Far::Peer(socket) => socket.try_recv(room),
        }
    }
}

/// What was said of a datagram that was sent: where nothing is to be received, it comes as an error alone.
fn said<T>(socket: &UdpSocket) -> io::Result<T> {
    socket.try_io(Interest::ERROR, || Err(socket.take_error()?.unwrap_or(ErrorKind::WouldBlock.into())))
}
