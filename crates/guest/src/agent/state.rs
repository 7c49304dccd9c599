//! The agent's state, and how it is set up.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandling_protocol::StreamId;

use crate::cgroup::Cgroups;
use crate::console;
use crate::environment::Variables;
use crate::exec::Execs;
use crate::identity::Names;
use crate::interpreters::{Contexts, Drivers, Interpreters};
use crate::link::{Endpoint, Link};
use crate::outbox::Outbox;
use crate::streams::Streams;
use crate::sys::children::{self, Ending};
use crate::sys::fds;
use crate::sys::poller::{Interest, Poller, Source};
use crate::timers::Timers;
use crate::tunnel::Tunnel;
use crate::worker::Workers;

/// The size of a read: a whole pipe's content.
pub const READ_BYTES: usize = 64 * 1024;

/// Where the agent runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunMode {
    /// As PID 1 of a sandbox: it sets the clock, the names and the randomness.
    Machine,
    /// As an ordinary process in a test: it leaves the machine as it is.
    Test,
}

pub struct Setup {
    mode: RunMode,
    socket: Option<PathBuf>,
    folder: PathBuf,
    cgroups: Cgroups,
}

impl Setup {
    pub fn machine(folder: &Path, cgroups: Cgroups) -> Self {
        Self { mode: RunMode::Machine, socket: None, folder: folder.to_owned(), cgroups }
    }

    pub fn test(socket: PathBuf) -> Self {
        // Absolute, because drivers are started in another directory.
        let folder = std::path::absolute(socket.with_extension("run")).unwrap_or_default();
        Self { mode: RunMode::Test, socket: Some(socket), folder, cgroups: Cgroups::default() }
    }

    fn endpoint(&self) -> io::Result<Endpoint> {
        let Some(path) = &self.socket else {
            return Ok(Endpoint::Port);
        };
        // Orphans become the agent's children, as they become PID 1's.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        Ok(Endpoint::Listener(UnixListener::bind(path)?))
    }
}

/// What a child process belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    Exec(u64),
    Interpreter(u64),
}

pub struct Agent {
    /// `None` in tests.
    pub names: Option<Names>,
    pub poller: Poller,
    pub link: Link,
    pub streams: Streams,
    pub workers: Workers,
    /// A separate pool for watches, which last long and would block file operations.
    pub watchers: Workers,
    pub timers: Timers,
    pub execs: Execs,
    pub interpreters: Interpreters,
    pub contexts: Contexts,
    pub drivers: Drivers,
    pub cgroups: Cgroups,
    /// The sandbox's environment.
    pub variables: Variables,
    pub tunnels: HashMap<StreamId, Tunnel>,
    pub children: HashMap<u32, Owner>,
    /// Endings of processes that are not in `children`, newest first.
    pub unclaimed_endings: Vec<(u32, Ending)>,
    pub discarded: HashMap<u64, OwnedFd>,
    pub last_discarded: u64,
    /// A buffer for reads; its content does not outlive a call.
    pub buffer: Vec<u8>,
    /// `/dev/null`, the stdin of a command without input.
    pub null: OwnedFd,
    pub(super) child_events: OwnedFd,
    pub(super) blocked: bool,
}

impl Agent {
    pub fn new(setup: Setup) -> io::Result<Self> {
        console::log_panics();
        fds::reserve_low_numbers()?;
        let child_events = children::watch()?;
        let poller = Poller::new()?;
        let outbox = Arc::new(Outbox::new()?);
        poller.add(&child_events, Source::Children, Interest::Read)?;
        poller.add(outbox.wake_fd(), Source::Wake, Interest::Read)?;
        let link = Link::new(setup.endpoint()?);
        if let Some(listener) = link.listener() {
            poller.add(listener, Source::Listener, Interest::Read)?;
        }
        Ok(Self {
            drivers: Drivers::install(&setup.folder)?,
            names: if setup.mode == RunMode::Machine { Some(Names::open(&setup.folder)?) } else { None },
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
            discarded: HashMap::new(),
            last_discarded: 0,
            buffer: vec![0; READ_BYTES],
            null: fds::dev_null()?,
            child_events,
            blocked: false,
        })
    }
}
