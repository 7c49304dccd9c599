//! The remote end of an exchange: a socket of the host, or the gateway of a peer.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket as StdSocket};

use rustix::net::SendFlags;
use tokio::io::Interest;
use tokio::net::{UdpSocket, UnixDatagram};

use crate::destination::Destination;
use crate::peers::PeerNames;

/// The remote end of an exchange.
pub(crate) enum RemoteEnd {
    /// A socket that is connected to this address, so that it receives no datagrams from others.
    Host(UdpSocket, SocketAddr),
    /// One end of a socket pair. The peer's gateway has the other.
    Peer(UnixDatagram),
}

impl RemoteEnd {
    /// Opens the socket, with this buffer size. It sends nothing, so it does not wait.
    pub fn open(peers: &PeerNames, to: &Destination, buffer: Option<u32>) -> io::Result<RemoteEnd> {
        if let Some(peer) = &to.peer {
            return peers.datagrams(peer, to.port).map(RemoteEnd::Peer);
        }
        let socket = StdSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        let peer = SocketAddr::from((to.address, to.port));
        socket.connect(peer)?;
        socket.set_nonblocking(true)?;
        // Many sockets that are never read must not hold much of the kernel's memory.
        if let Some(size) = buffer {
            rustix::net::sockopt::set_socket_recv_buffer_size(&socket, size as usize)?;
        }
        Ok(RemoteEnd::Host(UdpSocket::from_std(socket)?, peer))
    }

    /// Sends a datagram, or drops it if it cannot be sent now.
    pub fn send(&self, data: &[u8]) -> io::Result<()> {
        // tokio's own call sends nothing until it has seen the socket ready once.
        let sent = match self {
            RemoteEnd::Host(socket, _) => rustix::net::send(socket, data, SendFlags::DONTWAIT),
            RemoteEnd::Peer(socket) => rustix::net::send(socket, data, SendFlags::DONTWAIT),
        };
        Ok(sent.map(drop)?)
    }

    /// Waits until there may be a datagram or an error.
    pub async fn readable(&self) -> io::Result<()> {
        match self {
            RemoteEnd::Host(socket, _) => socket.ready(Interest::READABLE | Interest::ERROR).await.map(drop),
            RemoteEnd::Peer(socket) => socket.readable().await,
        }
    }

    /// Receives a datagram if one has arrived. A datagram longer than `room` is truncated.
    pub fn receive(&self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            RemoteEnd::Host(socket, peer) => match socket.try_recv_from(room) {
                Ok((count, from)) if from == *peer => Ok(count),
                // From another sender, received before the socket was connected.
                Ok(_) => Err(ErrorKind::InvalidData.into()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => said(socket),
                Err(error) => Err(error),
            },
            RemoteEnd::Peer(socket) => socket.try_recv(room),
        }
    }
}

/// The ICMP error for an earlier datagram. Without a datagram to receive, it only shows as an error.
fn said<T>(socket: &UdpSocket) -> io::Result<T> {
    socket.try_io(Interest::ERROR, || Err(socket.take_error()?.unwrap_or(ErrorKind::WouldBlock.into())))
}
