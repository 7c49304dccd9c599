//! Messages that wait to be sent to the host.
//!
//! The agent's thread never blocks here: it checks for room and comes back later. Worker threads block. The outbox refuses
//! messages of a session that is over, so a slow worker cannot send into the next one.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use sandling_protocol::{StreamId, ToHost, frame};

/// Above this many bytes no `Data` is added; answers and events always are.
const ROOM: usize = 512 * 1024;

pub struct Outbox {
    queue: Mutex<Queue>,
    room: Condvar,
    wake: OwnedFd,
}

#[derive(Default)]
struct Queue {
    session: u64,
    frames: VecDeque<Vec<u8>>,
    bytes: usize,
    /// A message in it is urgent.
    urgent: bool,
    /// Streams that workers have ended.
    ended: Vec<StreamId>,
    /// How many workers wait for room.
    waiting: usize,
}

/// The session is over, so the message has no receiver.
#[derive(Debug, PartialEq, Eq)]
pub struct SessionOver;

impl Outbox {
    pub fn new() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { queue: Mutex::default(), room: Condvar::new(), wake })
    }

    /// Becomes readable when a worker has added a message.
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Drops all messages and begins the session `number`.
    pub fn begin(&self, number: u64) {
        let mut queue = self.lock();
        *queue = Queue { session: number, waiting: queue.waiting, ..Queue::default() };
        drop(queue);
        self.room.notify_all();
    }

    pub fn has_room(&self) -> bool {
        self.lock().bytes < ROOM
    }

    /// Adds a message from the agent's thread.
    pub fn push(&self, session: u64, message: &ToHost, body: &[u8]) -> Result<(), SessionOver> {
        self.push_deferred(session, message, body)?;
        self.mark_urgent();
        Ok(())
    }

    /// Adds a message that is sent with the next urgent one, or after [`Outbox::mark_urgent`].
    pub fn push_deferred(&self, session: u64, message: &ToHost, body: &[u8]) -> Result<(), SessionOver> {
        let frame = encode(message, body);
        let mut queue = self.lock();
        if queue.session != session {
            return Err(SessionOver);
        }
        queue.add(frame);
        Ok(())
    }

    /// Makes the waiting messages urgent.
    pub fn mark_urgent(&self) {
        self.lock().urgent = true;
    }

    /// Adds a message from a worker; blocks until there is room.
    pub fn push_waiting(&self, session: u64, message: &ToHost, body: &[u8]) -> Result<(), SessionOver> {
        let frame = encode(message, body);
        let mut queue = self.lock();
        while queue.session == session && queue.bytes >= ROOM {
            queue.waiting += 1;
            queue = self.room.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.waiting -= 1;
        }
        if queue.session != session {
            return Err(SessionOver);
        }
        if let ToHost::End { stream, .. } = message {
            queue.ended.push(*stream);
        }
        queue.add(frame);
        queue.urgent = true;
        drop(queue);
        // Fails only if the counter is full, and then the agent has been woken already.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        Ok(())
    }

    /// The streams that workers have ended since the last call.
    pub fn take_ended(&self) -> Vec<StreamId> {
        let _ = rustix::io::read(&self.wake, &mut [0u8; 8]);
        std::mem::take(&mut self.lock().ended)
    }

    /// Moves complete frames to `out`, about as many as one write to the channel takes.
    pub fn drain_into(&self, out: &mut Vec<u8>, about: usize) {
        let mut queue = self.lock();
        while queue.urgent
            && out.len() < about
            && let Some(frame) = queue.frames.pop_front()
        {
            queue.bytes -= frame.len();
            out.extend_from_slice(&frame);
        }
        queue.urgent &= !queue.frames.is_empty();
        if queue.waiting > 0 && queue.bytes < ROOM {
            self.room.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn add(&mut self, frame: Vec<u8>) {
        self.bytes += frame.len();
        self.frames.push_back(frame);
    }
}

/// Encodes a message. A failure replaces an answer that is too long for a frame.
fn encode(message: &ToHost, body: &[u8]) -> Vec<u8> {
    frame::encode(message, body).unwrap_or_else(|error| {
        crate::console::log(&format!("a message could not be encoded: {error}"));
        let ToHost::End { stream, .. } = message else {
            return Vec::new();
        };
        let failure = crate::failure::failure(
            sandling_protocol::FailureKind::TooLarge,
            "the answer is too large for one message",
        );
        let end = ToHost::End { stream: *stream, outcome: sandling_protocol::Outcome::Failed(failure) };
        frame::encode(&end, &[]).unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> ToHost {
        ToHost::Hello { nonce: "n".into(), generation: 1 }
    }

    #[test]
    fn a_worker_that_waits_for_room_learns_that_the_session_is_over() {
        let outbox = std::sync::Arc::new(Outbox::new().unwrap());
        outbox.begin(1);
        outbox.push(1, &hello(), &vec![1; ROOM]).unwrap();
        assert!(!outbox.has_room());
        let other = outbox.clone();
        let worker = std::thread::spawn(move || other.push_waiting(1, &hello(), &[]));
        outbox.begin(2);
        assert_eq!(worker.join().unwrap(), Err(SessionOver));
        assert!(outbox.has_room());
    }

    #[test]
    fn messages_that_are_not_urgent_are_sent_with_the_next_urgent_one() {
        let outbox = Outbox::new().unwrap();
        outbox.begin(1);
        outbox.push_deferred(1, &hello(), &[]).unwrap();
        let mut out = Vec::new();
        outbox.drain_into(&mut out, 1000);
        assert_eq!(out.len(), 0);
        outbox.push(1, &hello(), &[]).unwrap();
        outbox.drain_into(&mut out, 1000);
        assert_eq!(out.len(), 2 * encode(&hello(), &[]).len());
        outbox.push_deferred(1, &hello(), &[]).unwrap();
        outbox.drain_into(&mut out, 1000);
        assert_eq!(out.len(), 2 * encode(&hello(), &[]).len());
    }

    #[test]
    fn draining_makes_room() {
        let outbox = Outbox::new().unwrap();
        outbox.begin(1);
        outbox.push(1, &hello(), &vec![1; ROOM]).unwrap();
        let mut out = Vec::new();
        outbox.drain_into(&mut out, 1);
        assert!(outbox.has_room() && out.len() > ROOM);
    }
}
