//! Streams: what the host has opened, and the credits of both directions.

use std::collections::HashMap;
use std::sync::Arc;

use sandling_protocol::{CHUNK, Event, Failure, Outcome, Response, StreamId, ToHost, WINDOW};

use crate::exec::output::{Log, Output};
use crate::outbox::Outbox;
use crate::worker::WorkerEnd;

/// More at once would be a host gone wrong.
pub const MAX_STREAMS: usize = 1024;

/// Credit is given back in portions; the peer always has the rest of its window.
const CREDIT_PORTION: usize = WINDOW / 4;

pub struct Stream {
    /// Bytes we may still send.
    pub credit: usize,
    /// Bytes the host may still send.
    pub window: usize,
    /// Bytes consumed for which no credit was given yet.
    owed: usize,
    pub kind: Kind,
}

pub enum Kind {
    /// Waits for something to be done; carries no data.
    Waiting,
    /// Looks at a command's output, from a position on.
    Viewer { exec: u64, position: u64, existing: bool },
    /// Looks at a cell that runs.
    Cell { context: u64, position: u64 },
    /// A cell that has ended, whose output is not all sent.
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

/// How far a stream got with sending.
#[derive(Debug, PartialEq, Eq)]
pub enum Pumped {
    /// All there is has been sent.
    Everything,
    /// The host must give credit first.
    NeedsCredit,
    /// The channel must take something first.
    NeedsRoom,
}

pub struct Streams {
    open: HashMap<StreamId, Stream>,
    pub outbox: Arc<Outbox>,
    pub session: u64,
    /// The host has begun this session; until then, what arrives was meant for an earlier one.
    pub greeted: bool,
}

impl Streams {
    pub fn new(outbox: Arc<Outbox>) -> Self {
        Self { open: HashMap::new(), outbox, session: 0, greeted: false }
    }

    /// Ends the session; its streams are returned, to be let go.
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
        self.say(&ToHost::Event { stream, event }, &[]);
    }

    /// An event that goes with whatever is sent next.
    pub fn unhurried_event(&self, stream: StreamId, event: Event) {
        let _ = self.outbox.push_unhurried(self.session, &ToHost::Event { stream, event }, &[]);
    }

    /// Ends a stream.
    pub fn end(&mut self, stream: StreamId, result: Result<Response, Failure>) {
        if self.open.remove(&stream).is_some() {
            let outcome = result.map_or_else(Outcome::Failed, Outcome::Ok);
            self.say(&ToHost::End { stream, outcome }, &[]);
        }
    }

    pub fn say(&self, message: &ToHost, body: &[u8]) {
        // A message for a session that is over has no listener.
        let _ = self.outbox.push(self.session, message, body);
    }

    /// Notes that `bytes` of the host's data were used up, and gives credit for them in time.
    pub fn consumed(&mut self, stream: StreamId, bytes: usize) {
        let Some(open) = self.open.get_mut(&stream) else {
            return;
        };
        open.owed += bytes;
        if open.owed >= CREDIT_PORTION {
            let owed = std::mem::take(&mut open.owed);
            open.window += owed;
            self.say(&ToHost::Credit { stream, bytes: owed as u32 }, &[]);
        }
    }

    /// Sends a log from `position` on, as far as credit and room allow; returns the new position.
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
