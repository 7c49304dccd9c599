//! The thread that writes what waits, sums up refusals and copies entries.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{io, thread};

/// How often the thread works without being woken.
const EVERY: Duration = Duration::from_secs(5);
/// How long a flush may take. A target that does not read must not keep a server from ending.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct Worker(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    has_work: bool,
    closed: bool,
    ended: bool,
    /// How many flushes were asked for, and how many are done.
    flushes_wanted: u64,
    flushes_done: u64,
}

impl Worker {
    /// Starts the thread. It calls `work` with true when everything must be written.
    pub(super) fn start(work: impl Fn(bool) + Send + 'static) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let thread = shared.clone();
        thread::Builder::new().name("audit".to_owned()).spawn(move || {
            thread.run(&work);
            drop(work);
            thread.lock().ended = true;
            thread.changed.notify_all();
        })?;
        Ok(Self(shared))
    }

    pub(super) fn wake(&self) {
        self.0.lock().has_work = true;
        self.0.changed.notify_all();
    }

    pub(super) fn flush(&self) {
        let mut state = self.0.lock();
        state.flushes_wanted += 1;
        let wanted = state.flushes_wanted;
        self.0.changed.notify_all();
        let waited = self.0.changed.wait_timeout_while(state, FLUSH_TIMEOUT, |state| state.flushes_done < wanted);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Worker {
    /// Waits for the thread, whose work keeps the owner of the home alive.
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.closed = true;
        self.0.changed.notify_all();
        drop(self.0.changed.wait_timeout_while(state, FLUSH_TIMEOUT, |state| !state.ended));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, work: &impl Fn(bool)) {
        loop {
            let is_idle =
                |state: &mut State| !state.has_work && !state.closed && state.flushes_done == state.flushes_wanted;
            let waited = self.changed.wait_timeout_while(self.lock(), EVERY, is_idle);
            let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            state.has_work = false;
            let (wanted, closed) = (state.flushes_wanted, state.closed);
            let all = closed || wanted > state.flushes_done;
            drop(state);
            work(all);
            self.lock().flushes_done = wanted;
            self.changed.notify_all();
            if closed {
                return;
            }
        }
    }
}
