//! The streams that the host has opened, and the credits of both directions.

use std::collections::HashMap;
use std::sync::Arc;

use sandling_protocol::{CHUNK, Event, Failure, Outcome, Response, StreamId, ToHost, WINDOW};

use crate::exec::output::{Log, Output};
use crate::outbox::Outbox;
use crate::worker::WorkerEnd;

/// No correct host opens more at once.
pub const MAX_STREAMS: usize = 1024;

/// Credit is granted in portions of this size; the peer can use the rest of its window meanwhile.
const CREDIT_PORTION: usize = WINDOW / 4;

pub struct Stream {
    /// Bytes that the agent may still send.
    pub credit: usize,
    /// Bytes that the host may still send.
    pub window: usize,
    /// Consumed bytes that were not credited yet.
    owed: usize,
    pub kind: Kind,
}

pub enum Kind {
    /// Waits for an answer; carries no data.
    Waiting,
    /// Sends a command's output from a position on.
    Viewer { exec: u64, position: u64, existing: bool },
    /// Sends the output of a running cell.
    Cell { context: u64, position: u64 },
    /// Sends the rest of the output of a cell that has ended.
    Ended { output: Box<Output>, position: u64, response: Response },
    /// A worker thread has the other end.
    Worker(Arc<WorkerEnd>),
    /// A TCP connection; see [`crate::tunnel`].
    Tunnel,
}

impl Stream {
    fn new(kind: Kind) -> Self {
        Self { credit: WINDOW, window: WINDOW, owed: 0, kind }
    }
}

/// Why a stream stopped sending.
#[derive(Debug, PartialEq, Eq)]
pub enum Pumped {
    /// Everything was sent.
    Everything,
    /// The host must grant credit first.
    NeedsCredit,
    /// The outbox must have room first.
    NeedsRoom,
}

pub struct Streams {
    open: HashMap<StreamId, Stream>,
    pub outbox: Arc<Outbox>,
    pub session: u64,
    /// The host has begun this session. Messages that arrive before belong to an earlier one.
    pub greeted: bool,
}

impl Streams {
    pub fn new(outbox: Arc<Outbox>) -> Self {
        Self { open: HashMap::new(), outbox, session: 0, greeted: false }
    }

    /// Ends the session and returns its streams, for the caller to release.
    pub fn end_session(&mut self) -> Vec<(StreamId, Stream)> {
        self.session += 1;
        self.greeted = false;
        self.outbox.begin(self.session);
        self.open.drain().collect()
    }

    pub fn open(&mut self, stream: StreamId, kind: Kind) {
        self.open.insert(stream, Stream::new(kind));
    }

    pub fn is_full(&self) -> bool {
        self.open.len() >= MAX_STREAMS
    }

    pub fn get(&mut self, stream: StreamId) -> Option<&mut Stream> {
        self.open.get_mut(&stream)
    }

    pub fn remove(&mut self, stream: StreamId) -> Option<Stream> {
        self.open.remove(&stream)
    }

    pub fn event(&self, stream: StreamId, event: Event) {
        self.send(&ToHost::Event { stream, event }, &[]);
    }

    /// Adds an event that is sent with the next message.
    pub fn unhurried_event(&self, stream: StreamId, event: Event) {
        let _ = self.outbox.push_unhurried(self.session, &ToHost::Event { stream, event }, &[]);
    }

    /// Ends a stream.
    pub fn end(&mut self, stream: StreamId, result: Result<Response, Failure>) {
        if self.open.remove(&stream).is_some() {
            let outcome = result.map_or_else(Outcome::Failed, Outcome::Ok);
            self.send(&ToHost::End { stream, outcome }, &[]);
        }
    }

    pub fn send(&self, message: &ToHost, body: &[u8]) {
        // If the session is over, the message has no receiver.
        let _ = self.outbox.push(self.session, message, body);
    }

    /// Counts `bytes` of the host's data as consumed, and grants credit in portions.
    pub fn consumed(&mut self, stream: StreamId, bytes: usize) {
        let Some(open) = self.open.get_mut(&stream) else {
            return;
        };
        open.owed += bytes;
        if open.owed >= CREDIT_PORTION {
            let owed = std::mem::take(&mut open.owed);
            open.window += owed;
            self.send(&ToHost::Credit { stream, bytes: owed as u32 }, &[]);
        }
    }

    /// Sends a log from `position` on, as far as credit and room allow. Returns the new position.
    pub fn pump(&mut self, stream: StreamId, log: &Log, mut position: u64) -> (Pumped, u64) {
        let Some(open) = self.open.get_mut(&stream) else {
            return (Pumped::Everything, position);
        };
        loop {
            if position < log.start() {
                let bytes = log.start() - position;
                let event = ToHost::Event { stream, event: Event::Dropped { bytes } };
                let _ = self.outbox.push(self.session, &event, &[]);
                position = log.start();
            }
            if position >= log.end() {
                return (Pumped::Everything, position);
            }
            if open.credit == 0 {
                return (Pumped::NeedsCredit, position);
            }
            if !self.outbox.has_room() {
                return (Pumped::NeedsRoom, position);
            }
            let Some((part, bytes)) = log.read(position, CHUNK.min(open.credit)) else {
                return (Pumped::Everything, position);
            };
            open.credit -= bytes.len();
            let _ = self.outbox.push(self.session, &ToHost::Data { stream, part, offset: position }, &bytes);
            position += bytes.len() as u64;
        }
    }
}
