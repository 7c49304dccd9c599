//! The agent: one thread that owns all state, waits for anything to happen, and deals with it without waiting.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sandling_protocol::{Part, StreamId};

use crate::cgroup::Cgroups;
use crate::console;
use crate::environment::Variables;
use crate::exec::{Execs, Pipe};
use crate::identify::Names;
use crate::interpreters::{Contexts, Drivers, Interpreters};
use crate::link::{Link, Place, Received};
use crate::outbox::Outbox;
use crate::streams::Streams;
use crate::sys::children::{self, Ending};
use crate::sys::fds;
use crate::sys::poller::{Interest, Poller, Source};
use crate::timers::{Timer, Timers};
use crate::tunnel::Tunnel;
use crate::worker::Workers;

/// How much is read from anything at a time: a whole pipe's worth.
pub const READ_BYTES: usize = 64 * 1024;

const REOPEN_AFTER: Duration = Duration::from_millis(250);

/// A blocked channel is tried again this often, should the kernel not tell that it takes bytes again.
const BLOCKED_RETRY: Duration = Duration::from_millis(200);

/// Endings of processes nobody knew, kept in case somebody is about to.
const MOST_UNCLAIMED: usize = 64;

/// Where the agent runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// As PID 1 of a sandbox, whose clock, name and randomness are its own.
    Machine,
    /// As a process of a machine that is somebody else's.
    Test,
}

pub struct Setup {
    home: Home,
    socket: Option<PathBuf>,
    folder: PathBuf,
    cgroups: Cgroups,
}

impl Setup {
    pub fn machine(folder: &Path, cgroups: Cgroups) -> Self {
        Self { home: Home::Machine, socket: None, folder: folder.to_owned(), cgroups }
    }

    pub fn test(socket: PathBuf) -> Self {
        // Drivers are started from another directory.
        let folder = std::path::absolute(socket.with_extension("run")).unwrap_or_default();
        Self { home: Home::Test, socket: Some(socket), folder, cgroups: Cgroups::default() }
    }

    fn place(&self) -> io::Result<Place> {
        let Some(path) = &self.socket else {
            return Ok(Place::Port);
        };
        // Orphans come to us, as they come to PID 1.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        Ok(Place::Listener(UnixListener::bind(path)?))
    }
}

/// Whose process a child is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    Exec(u64),
    Interpreter(u64),
}

pub struct Agent {
    /// Absent where the machine is somebody else's.
    pub names: Option<Names>,
    pub poller: Poller,
    pub link: Link,
    pub streams: Streams,
    pub workers: Workers,
    /// Threads of their own for watches, which last: file operations must not wait for them to end.
    pub watchers: Workers,
    pub timers: Timers,
    pub execs: Execs,
    pub interpreters: Interpreters,
    pub contexts: Contexts,
    pub drivers: Drivers,
    pub cgroups: Cgroups,
    /// The sandbox's own environment.
    pub variables: Variables,
    pub tunnels: HashMap<StreamId, Tunnel>,
    pub children: HashMap<u32, Owner>,
    /// The newest first.
    pub unclaimed_endings: Vec<(u32, Ending)>,
    /// Streams that could send if the channel took more.
    pub starved: BTreeSet<StreamId>,
    pub discarded: HashMap<u64, OwnedFd>,
    pub last_discarded: u64,
    /// For reading into; nothing in it outlives a call.
    pub buffer: Vec<u8>,
    /// What a command without input reads.
    pub null: OwnedFd,
    child_events: OwnedFd,
    blocked: bool,
}

impl Agent {
    pub fn new(setup: Setup) -> io::Result<Self> {
        console::say_panics();
        fds::reserve_low_numbers()?;
        let child_events = children::watch()?;
        let poller = Poller::new()?;
        let outbox = Arc::new(Outbox::new()?);
        poller.add(&child_events, Source::Children, Interest::Read)?;
        poller.add(outbox.wake_fd(), Source::Wake, Interest::Read)?;
        let link = Link::new(setup.place()?);
        if let Some(listener) = link.listener() {
            poller.add(listener, Source::Listener, Interest::Read)?;
        }
        Ok(Self {
            drivers: Drivers::install(&setup.folder)?,
            names: if setup.home == Home::Machine { Some(Names::open(&setup.folder)?) } else { None },
            poller,
            link,
            streams: Streams::new(outbox),
            workers: Workers::default(),
            watchers: Workers::default(),
            timers: Timers::default(),
            execs: Execs::default(),
            interpreters: Interpreters::default(),
            contexts: Contexts::default(),
            cgroups: setup.cgroups,
            variables: Variables::new(),
            tunnels: HashMap::new(),
            children: HashMap::new(),
            unclaimed_endings: Vec::new(),
            starved: BTreeSet::new(),
            discarded: HashMap::new(),
            last_discarded: 0,
            buffer: vec![0; READ_BYTES],
            null: fds::dev_null()?,
            child_events,
            blocked: false,
        })
    }

    /// Serves for ever.
    pub fn serve(mut self) -> ! {
        if self.link.listener().is_none() {
            self.open_link();
        }
        loop {
            // Before the wait, also the first: a host that greeted early is answered already.
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

    /// A mistake in dealing with one thing must not end PID 1; it has been said on the console.
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
            Source::ContextStdout(key) => self.context_readable(key, Part::Stdout),
            Source::ContextStderr(key) => self.context_readable(key, Part::Stderr),
            Source::Discarded(key) => self.discard(key),
            Source::Tunnel(stream) => self.tunnel_ready(stream as StreamId),
        }
    }

    fn on_timer(&mut self, timer: Timer) {
        match timer {
            Timer::ExecDeadline(key) => self.exec_deadline(key),
            Timer::ListenToExec(key) => self.listen_to_exec(key),
            Timer::TerminalGrace(key) => self.finish_exec(key),
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

    /// Edges are told once, so everything there is has to be read.
    fn link_ready(&mut self) {
        loop {
            match self.link.receive(&mut self.buffer) {
                Received::Frames(frames) => {
                    // What cannot be decoded was cut by the end of an earlier session.
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

    /// Sends what waits, and lets streams add more while the channel takes it.
    fn send(&mut self) {
        loop {
            match self.link.send_from(&self.streams.outbox) {
                Ok(everything) => self.set_blocked(!everything),
                Err(_) => return self.link_broken(),
            }
            if self.blocked || self.starved.is_empty() {
                return;
            }
            for stream in std::mem::take(&mut self.starved) {
                self.pump(stream);
            }
        }
    }

    /// Waits for the channel to take bytes only while it does not: each change would wake us otherwise.
    fn set_blocked(&mut self, blocked: bool) {
        if blocked == std::mem::replace(&mut self.blocked, blocked) {
            return;
        }
        if let Some(fd) = self.link.fd() {
            let interest = if blocked { Interest::BothEdges } else { Interest::ReadEdges };
            // Our own descriptor, known to epoll: this cannot fail.
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
