//! Worker threads, for work that may block on a disk, and their end of a stream.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use sandling_protocol::{
    CHUNK, Event, Failure, FailureKind, LentDisk, Outcome, Part, Response, StreamId, ToHost, WINDOW,
};

use crate::failure::failure;
use crate::outbox::Outbox;

const MAX_THREADS: usize = 64;
const IDLE: Duration = Duration::from_secs(10);
/// Deep enough to walk a path of the maximum length level by level. Only the used part takes memory.
const STACK_BYTES: usize = 8 * 1024 * 1024;

type Job = Box<dyn FnOnce() + Send>;

/// A pool of threads that start on demand and end when idle.
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
    /// Runs a job on a thread. Fails if all threads are busy.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
        let busy = || failure(FailureKind::Busy, "too many operations at once; retry later");
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
                // A panic ends this job only; the panic hook has printed it.
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

/// The answer to bytes for an upload that has ended. Why it ended is the upload's own answer.
pub fn no_upload() -> Failure {
    failure(FailureKind::NotFound, "the upload has ended")
}

/// The host no longer reads the stream: stop and leave no trace.
#[derive(Debug, PartialEq, Eq)]
pub struct Cancelled;

/// The host has sent more than it had credit for.
#[derive(Debug, PartialEq, Eq)]
pub struct Overrun;

/// The state of one stream that the agent's thread and a worker share.
pub struct WorkerChannel {
    state: Mutex<ChannelState>,
    changed: Condvar,
    /// Becomes readable on cancellation, for workers that wait on descriptors.
    cancelled: OwnedFd,
}

struct ChannelState {
    /// Bytes that the worker may still send.
    credit: usize,
    /// Bytes that the host may still send.
    window: usize,
    inbox: VecDeque<Input>,
    finished: bool,
    cancelled: bool,
    /// The worker has answered and takes nothing more.
    answered: bool,
}

/// What the host sends to a worker.
pub enum Input {
    Bytes(Vec<u8>),
    /// The content of a disk, and the stream that says when it has been taken.
    Disk(LentDisk, WorkerStream),
}

impl WorkerChannel {
    fn lock(&self) -> MutexGuard<'_, ChannelState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut ChannelState)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    pub fn add_credit(&self, bytes: usize) {
        self.change(|state| state.credit = state.credit.saturating_add(bytes));
    }

    /// Hands over bytes from the host. Fails if the host had no credit for them.
    pub fn deliver(&self, bytes: Vec<u8>) -> Result<(), Overrun> {
        let mut state = self.lock();
        state.window = state.window.checked_sub(bytes.len()).ok_or(Overrun)?;
        state.inbox.push_back(Input::Bytes(bytes));
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Hands over a disk, whose bytes follow those that were delivered before.
    pub fn deliver_disk(&self, disk: LentDisk, taken: WorkerStream) {
        let mut state = self.lock();
        if state.answered {
            drop(state);
            return taken.end(Err(no_upload()));
        }
        state.inbox.push_back(Input::Disk(disk, taken));
        drop(state);
        self.changed.notify_all();
    }

    pub fn finish(&self) {
        self.change(|state| state.finished = true);
    }

    pub fn cancel(&self) {
        self.change(|state| state.cancelled = true);
        let _ = rustix::io::write(&self.cancelled, &1u64.to_ne_bytes());
    }

    /// Waits until `ready` returns true.
    fn wait(&self, ready: impl Fn(&ChannelState) -> bool) -> Result<MutexGuard<'_, ChannelState>, Cancelled> {
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

/// A worker's end of a stream. Its methods block, as file operations do.
pub struct WorkerStream {
    stream: StreamId,
    session: u64,
    end: Arc<WorkerChannel>,
    outbox: Arc<Outbox>,
    offset: u64,
    answered: bool,
}

impl WorkerStream {
    pub fn new(stream: StreamId, session: u64, outbox: Arc<Outbox>) -> std::io::Result<Self> {
        let state = ChannelState {
            credit: WINDOW,
            window: WINDOW,
            inbox: VecDeque::new(),
            finished: false,
            cancelled: false,
            answered: false,
        };
        let cancelled = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let end = Arc::new(WorkerChannel { state: Mutex::new(state), changed: Condvar::new(), cancelled });
        Ok(Self { stream, session, end, outbox, offset: 0, answered: false })
    }

    pub fn channel(&self) -> Arc<WorkerChannel> {
        self.end.clone()
    }

    /// Becomes readable when the host has cancelled.
    pub fn cancelled_fd(&self) -> BorrowedFd<'_> {
        self.end.cancelled.as_fd()
    }

    /// Sends bytes; blocks until there is credit.
    pub fn send(&mut self, part: Part, mut bytes: &[u8]) -> Result<(), Cancelled> {
        while !bytes.is_empty() {
            let mut state = self.end.wait(|state| state.credit > 0)?;
            let length = bytes.len().min(state.credit).min(CHUNK);
            state.credit -= length;
            drop(state);
            let (now, later) = bytes.split_at(length);
            self.post(&ToHost::Data { stream: self.stream, part, offset: self.offset }, now)?;
            self.offset += length as u64;
            bytes = later;
        }
        Ok(())
    }

    /// Receives what the host sends next; `None` when the host has finished.
    pub fn receive(&mut self) -> Result<Option<Input>, Cancelled> {
        let mut state = self.end.wait(|state| state.finished || !state.inbox.is_empty())?;
        let Some(input) = state.inbox.pop_front() else {
            return Ok(None);
        };
        if let Input::Bytes(bytes) = &input {
            state.window += bytes.len();
            drop(state);
            self.post(&ToHost::Credit { stream: self.stream, bytes: bytes.len() as u32 }, &[])?;
        }
        Ok(Some(input))
    }

    pub fn is_cancelled(&self) -> bool {
        self.end.lock().cancelled
    }

    pub fn event(&self, event: Event) -> Result<(), Cancelled> {
        self.post(&ToHost::Event { stream: self.stream, event }, &[])
    }

    pub fn end(mut self, result: Result<Response, Failure>) {
        self.answer(result);
    }

    fn answer(&mut self, result: Result<Response, Failure>) {
        self.answered = true;
        let mut state = self.end.lock();
        state.answered = true;
        let left = std::mem::take(&mut state.inbox);
        let cancelled = state.cancelled;
        drop(state);
        for input in left {
            if let Input::Disk(_, taken) = input {
                taken.end(Err(no_upload()));
            }
        }
        if cancelled {
            return;
        }
        let outcome = result.map_or_else(Outcome::Failed, Outcome::Ok);
        // If the session is over, so is the stream.
        let _ = self.post(&ToHost::End { stream: self.stream, outcome }, &[]);
    }

    fn post(&self, message: &ToHost, body: &[u8]) -> Result<(), Cancelled> {
        self.outbox.push_waiting(self.session, message, body).map_err(|_| Cancelled)
    }
}

impl Drop for WorkerStream {
    /// Ends the stream of a worker that panicked.
    fn drop(&mut self) {
        if !self.answered {
            self.answer(Err(failure(FailureKind::Other, "the operation crashed in the guest agent")));
        }
    }
}
