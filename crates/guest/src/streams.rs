//! The streams that the host has opened, and the credits of both directions.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use sandling_protocol::{CHUNK, Event, Failure, Outcome, Response, StreamId, ToHost, WINDOW};

use crate::exec::output::{Log, Output};
use crate::outbox::Outbox;
use crate::worker::WorkerChannel;

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
    /// How far the log that it sends has been sent.
    pub position: u64,
    pub kind: Kind,
}

pub enum Kind {
    /// Waits for an answer; carries no data.
    Waiting,
    /// Sends a command's output.
    Viewer { exec: u64, existing: bool },
    /// Sends the output of a running cell.
    Cell { context: u64 },
    /// Sends the rest of the output of a cell that has ended.
    Ended { output: Box<Output>, response: Response },
    /// A worker thread has the other end.
    Worker(Arc<WorkerChannel>),
    /// A TCP connection; see [`crate::tunnel`].
    Tunnel,
}

pub struct Streams {
    open: HashMap<StreamId, Stream>,
    pub outbox: Arc<Outbox>,
    pub session: u64,
    /// The host has begun this session. Messages that arrive before belong to an earlier one.
    pub greeted: bool,
    /// Streams that wait for room in the outbox.
    pub waiting_for_room: BTreeSet<StreamId>,
}

impl Streams {
    pub fn new(outbox: Arc<Outbox>) -> Self {
        Self { open: HashMap::new(), outbox, session: 0, greeted: false, waiting_for_room: BTreeSet::new() }
    }

    /// Ends the session and returns its streams, for the caller to release.
    pub fn end_session(&mut self) -> Vec<(StreamId, Stream)> {
        self.session += 1;
        self.greeted = false;
        self.waiting_for_room.clear();
        self.outbox.begin(self.session);
        self.open.drain().collect()
    }

    /// Opens a stream that waits for an answer.
    pub fn open(&mut self, stream: StreamId) {
        let open = Stream { credit: WINDOW, window: WINDOW, owed: 0, position: 0, kind: Kind::Waiting };
        self.open.insert(stream, open);
    }

    pub fn kind(&mut self, stream: StreamId) -> Option<&mut Kind> {
        self.open.get_mut(&stream).map(|open| &mut open.kind)
    }

    pub fn set_kind(&mut self, stream: StreamId, kind: Kind) {
        if let Some(open) = self.open.get_mut(&stream) {
            open.kind = kind;
        }
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
    pub fn deferred_event(&self, stream: StreamId, event: Event) {
        let _ = self.outbox.push_deferred(self.session, &ToHost::Event { stream, event }, &[]);
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

    /// Sends a log from the stream's position on, as far as credit and room allow. Returns the new position.
    pub fn pump(&mut self, stream: StreamId, log: &Log) -> Option<u64> {
        let open = self.open.get_mut(&stream)?;
        let push = |message: ToHost, body: &[u8]| drop(self.outbox.push(self.session, &message, body));
        loop {
            if open.position < log.start() {
                let bytes = log.start() - open.position;
                push(ToHost::Event { stream, event: Event::Dropped { bytes } }, &[]);
                open.position = log.start();
            }
            if open.position >= log.end() || open.credit == 0 {
                break;
            }
            if !self.outbox.has_room() {
                self.waiting_for_room.insert(stream);
                break;
            }
            let Some((part, bytes)) = log.read(open.position, CHUNK.min(open.credit)) else { break };
            open.credit -= bytes.len();
            push(ToHost::Data { stream, part, offset: open.position }, &bytes);
            open.position += bytes.len() as u64;
        }
        Some(open.position)
    }
}
