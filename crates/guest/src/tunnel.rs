//! Tunnels: a TCP connection to a port on the guest's loopback, as a stream.
//!
//! The host's half is closed by its `Finish`; the guest's half by the stream's end, which comes when the server has
//! closed and everything the host had sent by then is delivered.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType};
use sandling_protocol::{CHUNK, Event, Failure, FailureKind, Part, Response, StreamId, ToHost};

use crate::agent::Agent;
use crate::failure::{failure, io_failure};
use crate::streams::Kind;
use crate::sys::fds::{self, Got};
use crate::sys::poller::{Interest, Poller, Source};
use crate::sys::socket;

/// Reads in a row before others have their turn.
const READS_IN_A_ROW: usize = 8;

pub struct Tunnel {
    socket: OwnedFd,
    stage: Stage,
    port: u16,
    /// From the host, not yet taken by the server.
    pending: VecDeque<u8>,
    /// The host sends no more.
    finished: bool,
    /// The server sends no more.
    ended: bool,
    offset: u64,
    interest: Option<Interest>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    TryingV4,
    TryingV6,
    Connected,
}

impl Agent {
    pub fn connect(&mut self, stream: StreamId, port: u16) -> Result<(), Failure> {
        let socket = start_connecting(Stage::TryingV4, port).map_err(|error| io_failure("a socket", &error))?;
        let tunnel = Tunnel {
            socket,
            stage: Stage::TryingV4,
            port,
            pending: VecDeque::new(),
            finished: false,
            ended: false,
            offset: 0,
            interest: None,
        };
        self.tunnels.insert(stream, tunnel);
        if let Some(open) = self.streams.get(stream) {
            open.kind = Kind::Tunnel;
        }
        self.wait_for_tunnel(stream);
        Ok(())
    }

    pub fn tunnel_input(&mut self, stream: StreamId, bytes: &[u8]) {
        if let Some(tunnel) = self.tunnels.get_mut(&stream) {
            tunnel.pending.extend(bytes);
        }
        self.tunnel_ready(stream);
    }

    pub fn tunnel_input_finished(&mut self, stream: StreamId) {
        if let Some(tunnel) = self.tunnels.get_mut(&stream) {
            tunnel.finished = true;
        }
        self.tunnel_ready(stream);
    }

    /// Moves what can be moved, both ways.
    pub fn tunnel_ready(&mut self, stream: StreamId) {
        let Some(tunnel) = self.tunnels.get_mut(&stream) else {
            return;
        };
        if tunnel.stage != Stage::Connected {
            match tunnel.check_connection() {
                Ok(true) => self.streams.event(stream, Event::Connected),
                Ok(false) => return self.wait_for_tunnel(stream),
                Err(failure) => return self.end_tunnel(stream, Err(failure)),
            }
        }
        let taken = tunnel.deliver();
        self.streams.consumed(stream, taken);
        self.tunnel_read(stream);
        match self.tunnels.get(&stream) {
            Some(tunnel) if tunnel.ended && tunnel.pending.is_empty() => self.end_tunnel(stream, Ok(Response::Done)),
            _ => self.wait_for_tunnel(stream),
        }
    }

    fn tunnel_read(&mut self, stream: StreamId) {
        let (Some(tunnel), Some(open)) = (self.tunnels.get_mut(&stream), self.streams.get(stream)) else {
            return;
        };
        let mut credit = open.credit;
        for _ in 0..READS_IN_A_ROW {
            if tunnel.ended || credit == 0 || !self.streams.outbox.has_room() {
                break;
            }
            match fds::read(&tunnel.socket, &mut self.buffer[..CHUNK.min(credit)]) {
                Got::NothingYet => break,
                Got::End => tunnel.ended = true,
                Got::Bytes(length) => {
                    credit -= length;
                    let data = ToHost::Data { stream, part: Part::Bytes, offset: tunnel.offset };
                    self.streams.say(&data, &self.buffer[..length]);
                    tunnel.offset += length as u64;
                }
            }
        }
        if let Some(open) = self.streams.get(stream) {
            open.credit = credit;
        }
    }

    fn end_tunnel(&mut self, stream: StreamId, result: Result<Response, Failure>) {
        self.tunnels.remove(&stream);
        self.streams.end(stream, result);
    }

    /// Waits for what the tunnel could do something with.
    fn wait_for_tunnel(&mut self, stream: StreamId) {
        let (Some(tunnel), Some(open)) = (self.tunnels.get_mut(&stream), self.streams.get(stream)) else {
            return;
        };
        let connecting = tunnel.stage != Stage::Connected;
        let wants_to_read = !connecting && !tunnel.ended && open.credit > 0;
        let read = wants_to_read && self.streams.outbox.has_room();
        if wants_to_read && !read {
            self.starved.insert(stream);
        }
        tunnel.wait(&self.poller, stream, Interest::of(read, connecting || !tunnel.pending.is_empty()));
    }
}

impl Tunnel {
    /// Whether it is connected now. Tries the other loopback address if the first refuses.
    fn check_connection(&mut self) -> Result<bool, Failure> {
        let refused = |error: &std::io::Error| match error.kind() {
            std::io::ErrorKind::ConnectionRefused => {
                failure(FailureKind::Refused, format!("nobody listens on port {}", self.port))
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

    /// Gives the server what it takes now; returns how much that was.
    fn deliver(&mut self) -> usize {
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
            // It fails only for a connection that is gone, which reading will find out.
            let _ = rustix::net::shutdown(&self.socket, Shutdown::Write);
        }
        taken
    }

    fn wait(&mut self, poller: &Poller, stream: StreamId, interest: Interest) {
        let source = Source::Tunnel(u64::from(stream));
        let done = match (self.interest, interest) {
            (before, now) if before == Some(now) => return,
            // Taken out altogether: epoll reports a hang-up even to those who wait for nothing.
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

fn start_connecting(stage: Stage, port: u16) -> std::io::Result<OwnedFd> {
    let (family, address) = match stage {
        Stage::TryingV6 => (AddressFamily::INET6, SocketAddr::from((Ipv6Addr::LOCALHOST, port))),
        Stage::TryingV4 | Stage::Connected => (AddressFamily::INET, SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &address) {
        // A refusal is found, as it is later, by asking the socket.
        Ok(()) | Err(Errno::INPROGRESS | Errno::CONNREFUSED) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}
