//! The event loop: waits for an event and calls its handler.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use sandling_protocol::{ExitReason, StreamId};

use super::state::{Agent, Owner};
use crate::exec::Pipe;
use crate::link::Received;
use crate::sys::children::{self, Ending};
use crate::sys::poller::{Interest, Source};
use crate::timers::Timer;

const REOPEN_AFTER: Duration = Duration::from_millis(250);

/// How often a blocked channel is retried, in case the kernel does not report that it takes bytes again.
const BLOCKED_RETRY: Duration = Duration::from_millis(200);

/// How many endings of unknown processes are kept: a zygote may report one of them as its fork a moment later.
const MOST_UNCLAIMED: usize = 64;

impl Agent {
    /// Serves until the machine ends.
    pub fn serve(mut self) -> ! {
        if self.link.listener().is_none() {
            self.open_link();
        }
        loop {
            // Before every wait, also the first: a host that greeted early must get its answer.
            self.guarded(Self::send);
            let mut timeout = self.timers.next();
            if self.blocked {
                timeout = Some(timeout.map_or(BLOCKED_RETRY, |timeout| timeout.min(BLOCKED_RETRY)));
            }
            for source in self.poller.wait(timeout) {
                self.guarded(|agent| agent.on_ready(source));
            }
            while let Some(timer) = self.timers.due() {
                self.guarded(|agent| agent.on_timer(timer));
            }
        }
    }

    /// Catches panics, because a bug in one handler must not end PID 1. The panic hook prints them.
    fn guarded(&mut self, deal: impl FnOnce(&mut Self)) {
        let _ = catch_unwind(AssertUnwindSafe(|| deal(self)));
    }

    fn on_ready(&mut self, source: Source) {
        match source {
            Source::Link => self.link_ready(),
            Source::Listener => self.open_link(),
            Source::Wake => {
                for stream in self.streams.outbox.take_ended() {
                    self.streams.remove(stream);
                }
            }
            Source::Children => self.reap(),
            Source::ExecStdout(key) => self.exec_readable(key, Pipe::First),
            Source::ExecStderr(key) => self.exec_readable(key, Pipe::Second),
            Source::ExecStdin(key) => self.exec_writable(key),
            Source::Control(key) => self.control_ready(key),
            Source::ContextStdout(key) => self.context_readable(key, Pipe::First),
            Source::ContextStderr(key) => self.context_readable(key, Pipe::Second),
            Source::Discarded(key) => self.discard(key),
            Source::Tunnel(stream) => self.tunnel_ready(stream as StreamId),
        }
    }

    fn on_timer(&mut self, timer: Timer) {
        match timer {
            Timer::ExecDeadline(key) => self.end_exec(key, ExitReason::Timeout),
            Timer::ListenToExec(key) => self.listen_to_exec(key),
            Timer::OutputGrace(key) => self.finish_exec(key),
            Timer::KeepSize(key) => self.keep_size(key),
            Timer::Runaways => self.cgroups.kill_runaways(),
            Timer::CellDeadline(context, cell) => self.cell_deadline(context, cell),
            Timer::CellNudge(context, cell) => self.nudge_cell(context, cell),
            Timer::CellGrace(context, cell) => self.cell_grace_is_over(context, cell),
            Timer::Refill(language) => self.refill_if_due(language),
            Timer::CheckSpare(language) => self.check_spare(language),
            Timer::Reopen => self.open_link(),
        }
    }

    fn open_link(&mut self) {
        let opened = self.link.open().and_then(|fd| self.poller.add(fd, Source::Link, Interest::ReadEdges));
        self.blocked = false;
        self.end_session();
        match opened {
            Ok(()) => self.link_ready(),
            Err(_) => self.link_broken(),
        }
    }

    fn link_broken(&mut self) {
        self.link.close();
        self.end_session();
        if self.link.listener().is_none() {
            self.timers.set(REOPEN_AFTER, Timer::Reopen);
        }
    }

    /// Reads until nothing is left, because an edge is reported only once.
    fn link_ready(&mut self) {
        loop {
            match self.link.receive(&mut self.buffer) {
                Received::Frames(frames) => {
                    // A frame that cannot be decoded was cut off by the end of an earlier session.
                    for frame in frames.into_iter().flatten() {
                        self.guarded(|agent| agent.received(frame.message, frame.body));
                    }
                }
                Received::NothingYet => return,
                Received::HostAway => return self.end_session(),
                Received::Broken => return self.link_broken(),
            }
        }
    }

    /// Sends queued messages, and lets streams add more while the channel takes them.
    fn send(&mut self) {
        loop {
            match self.link.send_from(&self.streams.outbox) {
                Ok(everything) => self.set_blocked(!everything),
                Err(_) => return self.link_broken(),
            }
            if self.blocked || self.streams.waiting_for_room.is_empty() {
                return;
            }
            for stream in std::mem::take(&mut self.streams.waiting_for_room) {
                self.pump(stream);
            }
        }
    }

    /// Waits for the channel to become writable only while it is not, because every change wakes the agent.
    fn set_blocked(&mut self, blocked: bool) {
        if blocked == std::mem::replace(&mut self.blocked, blocked) {
            return;
        }
        if let Some(fd) = self.link.fd() {
            let interest = if blocked { Interest::BothEdges } else { Interest::ReadEdges };
            // Cannot fail: the descriptor is open and registered.
            let _ = self.poller.change(fd, Source::Link, interest);
        }
    }

    fn reap(&mut self) {
        let _ = rustix::io::read(&self.child_events, &mut self.buffer);
        while let Some((pid, ending)) = children::next_ended() {
            self.child_ended(pid, ending);
        }
    }

    pub fn child_ended(&mut self, pid: u32, ending: Ending) {
        match self.children.remove(&pid) {
            Some(Owner::Exec(key)) => self.exec_ended(key, ending),
            Some(Owner::Interpreter(key)) => self.interpreter_ended(key, ending),
            None => {
                self.unclaimed_endings.truncate(MOST_UNCLAIMED - 1);
                self.unclaimed_endings.insert(0, (pid, ending));
            }
        }
    }
}
