//! Worker threads, for what may wait on a disk, and their end of a stream.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use sandling_protocol::{CHUNK, Event, Failure, FailureKind, Outcome, Part, Response, StreamId, ToHost, WINDOW};

use crate::failure::failure;
use crate::outbox::Outbox;

const MAX_THREADS: usize = 64;
const IDLE: Duration = Duration::from_secs(10);
/// Only what is used of it takes memory. Deep enough to walk a path of the longest length level by level.
const STACK_BYTES: usize = 8 * 1024 * 1024;

type Job = Box<dyn FnOnce() + Send>;

/// Threads that are started when needed and end when idle.
#[derive(Clone, Default)]
pub struct Workers(Arc<Pool>);

#[derive(Default)]
struct Pool {
    state: Mutex<PoolState>,
    added: Condvar,
}

#[derive(Default)]
struct PoolState {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

impl Workers {
    /// Runs a job on a thread. Refused if all threads are at work.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
        let busy = || failure(FailureKind::Busy, "too many operations at once");
        let mut state = self.0.lock();
        if state.idle > state.jobs.len() {
            state.jobs.push_back(Box::new(job));
            self.0.added.notify_one();
            return Ok(());
        }
        if state.threads >= MAX_THREADS {
            return Err(busy());
        }
        state.jobs.push_back(Box::new(job));
        state.threads += 1;
        let pool = self.0.clone();
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || pool.work());
        if thread.is_err() {
            state.threads -= 1;
            state.jobs.pop_back();
            return Err(busy());
        }
        Ok(())
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                // A panic ends this job only; it has been said on the console.
                let _ = catch_unwind(AssertUnwindSafe(job));
                state = self.lock();
                continue;
            }
            state.idle += 1;
            let (next, timeout) = self.added.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = next;
            state.idle -= 1;
            if timeout.timed_out() && state.jobs.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

/// The host no longer listens; stop and leave no trace.
#[derive(Debug, PartialEq, Eq)]
pub struct Cancelled;

/// The host has sent more than it had credit for.
#[derive(Debug, PartialEq, Eq)]
pub struct Overrun;

/// What the agent's thread and a worker share about one stream.
pub struct WorkerEnd {
    state: Mutex<EndState>,
    changed: Condvar,
    /// Readable once cancelled, for workers that wait on descriptors.
    cancelled: OwnedFd,
}

struct EndState {
    /// Bytes we may still send.
    credit: usize,
    /// Bytes the host may still send.
    window: usize,
    inbox: VecDeque<Vec<u8>>,
    finished: bool,
    cancelled: bool,
}

impl WorkerEnd {
    fn lock(&self) -> MutexGuard<'_, EndState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut EndState)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    pub fn add_credit(&self, bytes: usize) {
        self.change(|state| state.credit = state.credit.saturating_add(bytes));
    }

    /// Hands over bytes from the host. Refused if it had no credit for them.
    pub fn deliver(&self, bytes: Vec<u8>) -> Result<(), Overrun> {
        let mut state = self.lock();
        state.window = state.window.checked_sub(bytes.len()).ok_or(Overrun)?;
        state.inbox.push_back(bytes);
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    pub fn finish(&self) {
        self.change(|state| state.finished = true);
    }

    pub fn cancel(&self) {
        self.change(|state| state.cancelled = true);
        let _ = rustix::io::write(&self.cancelled, &1u64.to_ne_bytes());
    }

    /// Waits until `ready` says so.
    fn wait(&self, ready: impl Fn(&EndState) -> bool) -> Result<MutexGuard<'_, EndState>, Cancelled> {
        let mut state = self.lock();
        loop {
            if state.cancelled {
                return Err(Cancelled);
            }
            if ready(&state) {
                return Ok(state);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A worker's end of a stream: blocking, as file operations are.
pub struct WorkerStream {
    stream: StreamId,
    session: u64,
    end: Arc<WorkerEnd>,
    outbox: Arc<Outbox>,
    offset: u64,
    answered: bool,
}

impl WorkerStream {
    pub fn new(stream: StreamId, session: u64, outbox: Arc<Outbox>) -> std::io::Result<Self> {
        let state =
            EndState { credit: WINDOW, window: WINDOW, inbox: VecDeque::new(), finished: false, cancelled: false };
        let cancelled = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let end = Arc::new(WorkerEnd { state: Mutex::new(state), changed: Condvar::new(), cancelled });
        Ok(Self { stream, session, end, outbox, offset: 0, answered: false })
    }

    pub fn agent_end(&self) -> Arc<WorkerEnd> {
        self.end.clone()
    }

    /// Becomes readable when the host has cancelled.
    pub fn cancelled_fd(&self) -> BorrowedFd<'_> {
        self.end.cancelled.as_fd()
    }

    /// Sends bytes, waiting for credit.
    pub fn send(&mut self, part: Part, mut bytes: &[u8]) -> Result<(), Cancelled> {
        while !bytes.is_empty() {
            let mut state = self.end.wait(|state| state.credit > 0)?;
            let length = bytes.len().min(state.credit).min(CHUNK);
            state.credit -= length;
            drop(state);
            let (now, later) = bytes.split_at(length);
            self.say(&ToHost::Data { stream: self.stream, part, offset: self.offset }, now)?;
            self.offset += length as u64;
            bytes = later;
        }
        Ok(())
    }

    /// Takes the host's next bytes; `None` when it has finished.
    pub fn receive(&mut self) -> Result<Option<Vec<u8>>, Cancelled> {
        let mut state = self.end.wait(|state| state.finished || !state.inbox.is_empty())?;
        let Some(bytes) = state.inbox.pop_front() else {
            return Ok(None);
        };
        state.window += bytes.len();
        drop(state);
        self.say(&ToHost::Credit { stream: self.stream, bytes: bytes.len() as u32 }, &[])?;
        Ok(Some(bytes))
    }

    pub fn event(&self, event: Event) -> Result<(), Cancelled> {
        self.say(&ToHost::Event { stream: self.stream, event }, &[])
    }

    pub fn end(mut self, result: Result<Response, Failure>) {
        self.answer(result);
    }

    fn answer(&mut self, result: Result<Response, Failure>) {
        self.answered = true;
        if self.end.lock().cancelled {
            return;
        }
        let outcome = result.map_or_else(Outcome::Failed, Outcome::Ok);
        // If the session is over, so is the stream.
        let _ = self.say(&ToHost::End { stream: self.stream, outcome }, &[]);
    }

    fn say(&self, message: &ToHost, body: &[u8]) -> Result<(), Cancelled> {
        self.outbox.push_waiting(self.session, message, body).map_err(|_| Cancelled)
    }
}

impl Drop for WorkerStream {
    /// A worker that panicked leaves no stream without an end.
    fn drop(&mut self) {
        if !self.answered {
            self.answer(Err(failure(FailureKind::Other, "the operation was given up")));
        }
    }
}
