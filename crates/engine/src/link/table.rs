//! Which streams are open, and how much each peer may still send on them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sandling_protocol::frame::{Frame, MAX_FRAME};
use sandling_protocol::{StreamId, ToHost, WINDOW};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Semaphore, mpsc, watch};

use super::stream::Incoming;

/// Messages of one stream that may wait for their reader: a whole window of single bytes, and some events.
const MAX_WAITING: usize = WINDOW + 4096;

pub(super) struct Entry {
    incoming: mpsc::Sender<Incoming>,
    /// Bytes the guest may still send before it needs a credit.
    receive_window: usize,
    /// Bytes we may still send, as permits.
    pub(super) send_window: Arc<Semaphore>,
}

/// The streams of one link. After `close`, no stream can be opened, and every reader gets the reason.
pub(super) struct Table {
    state: Mutex<State>,
    pub(super) closed: watch::Sender<Option<String>>,
}

struct State {
    streams: HashMap<StreamId, Entry>,
    next: StreamId,
    /// When the guest last sent something, or the first stream was opened after a time without streams.
    heard: Instant,
    /// Whether the machine is stopped on purpose, so that its silence is expected.
    held: bool,
}

impl Table {
    pub(super) fn new() -> Self {
        let state = State { streams: HashMap::new(), next: 1, heard: Instant::now(), held: false };
        Self { state: Mutex::new(state), closed: watch::Sender::new(None) }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a new stream, unless the link is closed.
    pub(super) fn open(&self) -> Result<(StreamId, mpsc::Receiver<Incoming>, Arc<Semaphore>), String> {
        let mut state = self.state();
        if let Some(reason) = self.closed.borrow().clone() {
            return Err(reason);
        }
        if state.streams.is_empty() {
            state.heard = Instant::now();
        }
        let id = state.next;
        state.next = state.next.wrapping_add(1).max(1);
        let (incoming, receiver) = mpsc::channel(MAX_WAITING);
        let send_window = Arc::new(Semaphore::new(WINDOW));
        state.streams.insert(id, Entry { incoming, receive_window: WINDOW, send_window: send_window.clone() });
        Ok((id, receiver, send_window))
    }

    pub(super) fn forget(&self, id: StreamId) -> bool {
        self.state().streams.remove(&id).is_some()
    }

    /// Gives the guest room for `bytes` more on this stream.
    pub(super) fn consumed(&self, id: StreamId, bytes: usize) {
        if let Some(entry) = self.state().streams.get_mut(&id) {
            entry.receive_window += bytes;
        }
    }

    /// How long the guest has been silent, if a stream waits for it.
    pub(super) fn silent_for(&self) -> Option<Duration> {
        let state = self.state();
        (!state.held && !state.streams.is_empty()).then(|| state.heard.elapsed())
    }

    pub(super) fn hold(&self, held: bool) {
        let mut state = self.state();
        state.held = held;
        state.heard = Instant::now();
    }

    pub(super) fn is_held(&self) -> bool {
        self.state().held
    }

    pub(super) fn close(&self, reason: &str) {
        let mut state = self.state();
        self.closed.send_if_modified(|closed| {
            let first = closed.is_none();
            closed.get_or_insert_with(|| reason.to_owned());
            first
        });
        for (_, entry) in state.streams.drain() {
            entry.send_window.close();
        }
    }

    /// Takes one message from the guest. An error is a violation that ends the link.
    pub(super) fn deliver(&self, frame: Frame<ToHost>) -> Result<(), &'static str> {
        let mut state = self.state();
        state.heard = Instant::now();
        match frame.message {
            ToHost::Hello { .. } => Err("a greeting in the middle of a session"),
            ToHost::Data { stream, part, offset } => {
                let Some(entry) = state.streams.get_mut(&stream) else { return Ok(()) };
                entry.receive_window =
                    entry.receive_window.checked_sub(frame.body.len()).ok_or("more data than the window allows")?;
                entry.pass(Incoming::Data { part, offset, bytes: frame.body })
            }
            ToHost::Event { stream, event } => match state.streams.get_mut(&stream) {
                Some(entry) => entry.pass(Incoming::Event(event)),
                None => Ok(()),
            },
            ToHost::Credit { stream, bytes } => match state.streams.get(&stream) {
                Some(entry) => entry.credit(bytes as usize),
                None => Ok(()),
            },
            ToHost::End { stream, outcome } => {
                let Some(mut entry) = state.streams.remove(&stream) else { return Ok(()) };
                entry.send_window.close();
                entry.pass(Incoming::End(outcome))
            }
        }
    }
}

impl Entry {
    fn pass(&mut self, message: Incoming) -> Result<(), &'static str> {
        match self.incoming.try_send(message) {
            // The reader was dropped.
            Ok(()) | Err(TrySendError::Closed(_)) => Ok(()),
            Err(TrySendError::Full(_)) => Err("more messages than anyone can read"),
        }
    }

    fn credit(&self, bytes: usize) -> Result<(), &'static str> {
        if bytes > MAX_FRAME || self.send_window.available_permits() + bytes > WINDOW {
            return Err("a credit for bytes that were never sent");
        }
        self.send_window.add_permits(bytes);
        Ok(())
    }
}
