//! Tunnels: moving bytes between streams and loopback connections.

use std::collections::VecDeque;

use sandling_protocol::{CHUNK, Event, Failure, Part, Response, StreamId, ToHost};

use super::state::Agent;
use crate::failure::io_failure;
use crate::streams::Kind;
use crate::sys::fds::{self, ReadResult};
use crate::sys::poller::Interest;
use crate::tunnel::{Stage, Tunnel, start_connecting};

/// Reads in a row before other events are handled.
const READS_IN_A_ROW: usize = 8;

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
        self.streams.set_kind(stream, Kind::Tunnel);
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

    /// Moves bytes in both directions, as far as possible without blocking.
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
                ReadResult::NothingYet => break,
                ReadResult::End => tunnel.ended = true,
                ReadResult::Bytes(length) => {
                    credit -= length;
                    let data = ToHost::Data { stream, part: Part::Bytes, offset: tunnel.offset };
                    self.streams.send(&data, &self.buffer[..length]);
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

    /// Registers for the events that let the tunnel continue.
    fn wait_for_tunnel(&mut self, stream: StreamId) {
        let (Some(tunnel), Some(open)) = (self.tunnels.get_mut(&stream), self.streams.get(stream)) else {
            return;
        };
        let connecting = tunnel.stage != Stage::Connected;
        let wants_to_read = !connecting && !tunnel.ended && open.credit > 0;
        let read = wants_to_read && self.streams.outbox.has_room();
        if wants_to_read && !read {
            self.streams.waiting_for_room.insert(stream);
        }
        tunnel.wait(&self.poller, stream, Interest::of(read, connecting || !tunnel.pending.is_empty()));
    }
}
