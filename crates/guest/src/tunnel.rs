//! Tunnels: a TCP connection to a port on the guest's loopback, as a stream.
//!
//! `Finish` closes the host's half. The stream's end closes the guest's half; it comes when the server has closed its
//! connection and everything that the host had sent by then is delivered.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType};
use sandling_protocol::{Failure, FailureKind, StreamId};

use crate::failure::{failure, io_failure};
use crate::sys::poller::{Interest, Poller, Source};
use crate::sys::socket;

pub struct Tunnel {
    pub socket: OwnedFd,
    pub stage: Stage,
    pub port: u16,
    /// Bytes from the host that the server has not taken yet.
    pub pending: VecDeque<u8>,
    /// The host sends no more.
    pub finished: bool,
    /// The server sends no more.
    pub ended: bool,
    pub offset: u64,
    pub interest: Option<Interest>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    TryingV4,
    TryingV6,
    Connected,
}

impl Tunnel {
    /// Whether the connection is established. Tries the other loopback address if the first refuses.
    pub fn check_connection(&mut self) -> Result<bool, Failure> {
        let refused = |error: &std::io::Error| match error.kind() {
            std::io::ErrorKind::ConnectionRefused => {
                failure(FailureKind::Refused, format!("no server listens on port {}", self.port))
            }
            _ => io_failure(format!("port {}", self.port), error),
        };
        match rustix::net::sockopt::socket_error(&self.socket) {
            Ok(Ok(())) if rustix::net::getpeername(&self.socket).is_ok() => {
                self.stage = Stage::Connected;
                Ok(true)
            }
            Ok(Ok(())) => Ok(false),
            Ok(Err(_)) if self.stage == Stage::TryingV4 => {
                self.socket = start_connecting(Stage::TryingV6, self.port).map_err(|error| refused(&error))?;
                self.stage = Stage::TryingV6;
                self.interest = None;
                Ok(false)
            }
            Ok(Err(error)) | Err(error) => Err(refused(&error.into())),
        }
    }

    /// Sends the server what it takes without blocking. Returns the number of bytes.
    pub fn deliver(&mut self) -> usize {
        let mut taken = 0;
        while !self.pending.is_empty() {
            let length = match socket::send(&self.socket, self.pending.as_slices().0) {
                Ok(0) => return taken,
                Ok(length) => length,
                // The server no longer reads.
                Err(_) => self.pending.len(),
            };
            self.pending.drain(..length);
            taken += length;
        }
        if self.finished {
            // Fails only for a closed connection, which the next read reports.
            let _ = rustix::net::shutdown(&self.socket, Shutdown::Write);
        }
        taken
    }

    pub fn wait(&mut self, poller: &Poller, stream: StreamId, interest: Interest) {
        let source = Source::Tunnel(u64::from(stream));
        let done = match (self.interest, interest) {
            (before, now) if before == Some(now) => return,
            // Removed, because epoll reports a hang-up even for an empty interest.
            (Some(_), Interest::Nothing) => {
                poller.remove(&self.socket);
                self.interest = None;
                return;
            }
            (None, Interest::Nothing) => return,
            (Some(_), _) => poller.change(&self.socket, source, interest),
            (None, _) => poller.add(&self.socket, source, interest),
        };
        if done.is_ok() {
            self.interest = Some(interest);
        }
    }
}

pub fn start_connecting(stage: Stage, port: u16) -> std::io::Result<OwnedFd> {
    let (family, address) = match stage {
        Stage::TryingV6 => (AddressFamily::INET6, SocketAddr::from((Ipv6Addr::LOCALHOST, port))),
        Stage::TryingV4 | Stage::Connected => (AddressFamily::INET, SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &address) {
        // `check_connection` finds a refusal in the socket's error.
        Ok(()) | Err(Errno::INPROGRESS | Errno::CONNREFUSED) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}
