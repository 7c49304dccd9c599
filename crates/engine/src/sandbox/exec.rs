//! Commands in a sandbox: start one, follow its output, and know how it ended.
//!
//! The guest enforces the deadline; the host does so again a little later, first by a signal, then by ending a
//! sandbox whose guest no longer obeys. So a timeout holds even against a guest that was taken over.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sandling_protocol::{
    ContextSpec, Event, ExecInfo, ExecSpec, Exit, ExitReason, OnLimit, Outcome, Part, Program, Request, Response,
    Stdin, TerminalSize,
};
use tokio::time::Instant;
use tracing::Span;

use super::activity::InUse;
use super::error::UseError;
use super::handle::Sandbox;
use super::run_limits::{self, LimitHit, RunLimits};
use crate::link::{Incoming, LinkError, Stream, StreamSender};
use crate::machine::Live;
use crate::model::{EndReason, ProcessDefaults};
use crate::trace::{command_span, record_exit};

/// How long the host waits beyond a command's own deadline before it steps in, and again before it gives up.
const GRACE: Duration = Duration::from_secs(5);
const HANGUP: i32 = 1;
const HANGUPS: u32 = 5;
const HANGUP_PAUSE: Duration = Duration::from_millis(500);
const SIGKILL: i32 = 9;
/// The most that a command which ran before may have printed under a limit of its own.
const MOST_REPLAYED: u64 = 1 << 30;

/// A command to run.
#[derive(Debug, Clone)]
pub struct RunSpec {
    pub program: Program,
    /// The script, where the program is code.
    pub code: Vec<u8>,
    pub env: BTreeMap<String, String>,
    pub cwd: Option<String>,
    pub user: Option<String>,
    pub timeout: Option<Duration>,
    pub output_limit: u64,
    pub on_limit: OnLimit,
    pub limits: RunLimits,
    pub stdin: Stdin,
    pub terminal: Option<TerminalSize>,
    /// Given by a caller who wants to be able to ask again; made up otherwise.
    pub id: Option<String>,
}

impl RunSpec {
    /// How much a command may print by default.
    pub const OUTPUT_LIMIT: u64 = 16 * 1024 * 1024;

    pub fn new(program: Program) -> Self {
        Self {
            program,
            code: Vec::new(),
            env: BTreeMap::new(),
            cwd: None,
            user: None,
            timeout: None,
            output_limit: Self::OUTPUT_LIMIT,
            on_limit: OnLimit::Kill,
            limits: RunLimits::default(),
            stdin: Stdin::Closed,
            terminal: None,
            id: None,
        }
    }

    pub fn shell(line: impl Into<String>) -> Self {
        Self::new(Program::Shell(line.into()))
    }

    pub fn code(language: sandling_protocol::Language, code: impl Into<Vec<u8>>) -> Self {
        let program = Program::Code { language, args: Vec::new() };
        Self { code: code.into(), ..Self::new(program) }
    }
}

impl ProcessDefaults {
    /// Fills in the user and directory of a command that names none.
    pub fn fill(self, spec: &mut RunSpec) {
        spec.user = spec.user.take().or(self.user);
        spec.cwd = spec.cwd.take().or(self.workdir);
    }

    /// Fills in the user and directory of an interpreter that names none.
    pub fn fill_context(self, spec: &mut ContextSpec) {
        spec.user = spec.user.take().or(self.user);
        spec.cwd = spec.cwd.take().or(self.workdir);
    }
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Use(#[from] UseError),
    #[error("guest died: {0}")]
    GuestDied(String),
}

/// What a command's stream brings, in order.
#[derive(Debug)]
pub enum Output {
    Started {
        pid: u32,
        existing: bool,
    },
    Bytes {
        part: Part,
        offset: u64,
        bytes: Vec<u8>,
    },
    /// So many bytes before the next ones are lost.
    Dropped(u64),
    Exited(Exit),
}

/// How a command ended whose guest does not say.
const TIMED_OUT: Exit = Exit {
    code: 128 + SIGKILL,
    signal: Some(SIGKILL),
    reason: ExitReason::Timeout,
    duration_ms: 0,
    stdout_bytes: 0,
    stderr_bytes: 0,
    dropped_bytes: 0,
};

/// A command that was started or attached to.
pub struct Execution {
    id: String,
    stream: Stream,
    live: Arc<Live>,
    _in_use: InUse,
    end_sandbox: Box<dyn Fn(EndReason) + Send + Sync>,
    deadline: Option<Instant>,
    overdue: Overdue,
    /// Bytes that the guest may still send: its own limit, held again here.
    room: u64,
    limit_hit: Option<LimitHit>,
    span: Span,
}

/// How far the host has gone against a command that outlived its deadline.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Overdue {
    No,
    Signalled,
}

/// All of a command's output, where that is wanted as one piece.
#[derive(Debug)]
pub struct Collected {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub exit: Exit,
}

impl Sandbox {
    /// Starts a command and attaches to it.
    pub fn run(self: &Arc<Self>, spec: RunSpec) -> Result<Execution, UseError> {
        let id = spec.id.unwrap_or_else(|| uuid::Uuid::new_v4().simple().to_string());
        let span = command_span(self.id(), &id, &spec.program);
        let request = Request::Run(ExecSpec {
            id: id.clone(),
            program: spec.program,
            env: spec.env,
            cwd: spec.cwd,
            user: spec.user,
            timeout_ms: spec.timeout.map(|t| t.as_millis() as u64),
            output_limit: spec.output_limit,
            on_limit: spec.on_limit,
            stdin: spec.stdin,
            terminal: spec.terminal,
        });
        let mut execution = self.follow(id, request, &spec.code)?;
        execution.span = span;
        execution.deadline = spec.timeout.map(|t| Instant::now() + t + GRACE);
        if spec.on_limit == OnLimit::Kill {
            execution.room = spec.output_limit;
        }
        if !spec.limits.is_none() {
            let (live, in_use) = self.live()?;
            execution.limit_hit = Some(run_limits::watch(live, in_use, execution.id.clone(), spec.limits));
        }
        Ok(execution)
    }

    /// Attaches to a command, with its output from byte `from` on.
    pub fn attach(self: &Arc<Self>, id: &str, from: u64) -> Result<Execution, UseError> {
        self.follow(id.to_owned(), Request::Attach { exec: id.to_owned(), from }, &[])
    }

    fn follow(self: &Arc<Self>, id: String, request: Request, code: &[u8]) -> Result<Execution, UseError> {
        let (live, in_use) = self.live()?;
        let stream = live.link.open(request, code)?;
        let sandbox = Arc::downgrade(self);
        let end_sandbox = Box::new(move |reason| {
            if let Some(sandbox) = sandbox.upgrade() {
                // Not awaited: the command is over either way.
                tokio::spawn(async move { sandbox.end(reason).await });
            }
        });
        let (deadline, overdue, room) = (None, Overdue::No, u64::MAX);
        let (limit_hit, span) = (None, Span::none());
        Ok(Execution { id, stream, live, _in_use: in_use, end_sandbox, deadline, overdue, room, limit_hit, span })
    }

    pub async fn list_execs(&self) -> Result<Vec<ExecInfo>, UseError> {
        match self.ask(Request::ListExecs).await? {
            Response::Execs { execs } => Ok(execs),
            _ => Err(LinkError::Unexpected.into()),
        }
    }

    /// Sends a signal to the whole process group of a command.
    pub async fn signal(&self, exec: &str, signal: i32) -> Result<(), UseError> {
        self.ask(Request::Signal { exec: exec.to_owned(), signal }).await.map(drop)
    }

    /// Drops a finished command's record and output.
    pub async fn forget_exec(&self, exec: &str) -> Result<(), UseError> {
        self.ask(Request::Forget { exec: exec.to_owned() }).await.map(drop)
    }

    pub async fn resize(&self, exec: &str, size: TerminalSize) -> Result<(), UseError> {
        self.ask(Request::Resize { exec: exec.to_owned(), size }).await.map(drop)
    }

    /// Asks the guest for something that has one answer.
    pub(crate) async fn ask(&self, request: Request) -> Result<Response, UseError> {
        let (live, _in_use) = self.live()?;
        Ok(live.link.call(request).await?)
    }
}

impl Execution {
    pub fn id(&self) -> &str {
        &self.id
    }

    /// For stdin, while another task reads the output.
    pub fn stdin(&self) -> StreamSender {
        self.stream.sender()
    }

    /// Sends a signal to the command's process group.
    pub async fn signal(&self, signal: i32) -> Result<(), UseError> {
        Ok(self.live.link.call(Request::Signal { exec: self.id.clone(), signal }).await.map(drop)?)
    }

    /// Tells a terminal's shell that its user is gone. A shell that is about to wait for a key misses the signal, and one
    /// that waits does not, so it is repeated.
    pub async fn hang_up(&mut self) {
        for _ in 0..HANGUPS {
            if self.signal(HANGUP).await.is_err() {
                return;
            }
            if tokio::time::timeout(HANGUP_PAUSE, self.end()).await.is_ok() {
                return;
            }
        }
    }

    /// Waits for the command's end, and discards its output.
    async fn end(&mut self) {
        while !matches!(self.next().await, Ok(Output::Exited(_)) | Err(_)) {}
    }

    /// The next piece. `Exited` is the last.
    pub async fn next(&mut self) -> Result<Output, RunError> {
        let next = self.receive().await;
        if let Ok(Output::Exited(exit)) = &next {
            record_exit(&self.span, exit);
        }
        if matches!(next, Ok(Output::Exited(_)) | Err(_)) {
            self.span = Span::none();
        }
        next
    }

    async fn receive(&mut self) -> Result<Output, RunError> {
        loop {
            let message = match self.deadline {
                None => self.stream.next().await,
                Some(at) => match tokio::time::timeout_at(at, self.stream.next()).await {
                    Ok(message) => message,
                    Err(_) => match self.overdue() {
                        Some(exit) => return Ok(Output::Exited(exit)),
                        None => continue,
                    },
                },
            };
            match message.map_err(died)? {
                Incoming::Data { part, offset, bytes } => {
                    self.count(bytes.len())?;
                    return Ok(Output::Bytes { part, offset, bytes });
                }
                Incoming::Event(Event::Started { pid, existing }) => {
                    if existing {
                        self.room = self.room.max(MOST_REPLAYED);
                    }
                    return Ok(Output::Started { pid, existing });
                }
                Incoming::Event(Event::Dropped { bytes }) => return Ok(Output::Dropped(bytes)),
                Incoming::Event(_) => {}
                Incoming::End(Outcome::Ok(Response::Exited(exit))) => return Ok(Output::Exited(self.explained(exit))),
                Incoming::End(Outcome::Ok(_)) => return Err(UseError::Link(LinkError::Unexpected).into()),
                Incoming::End(Outcome::Failed(failure)) => return Err(UseError::Link(failure.into()).into()),
            }
        }
    }

    /// To the guest, a command that the host has killed was killed by a signal.
    fn explained(&self, exit: Exit) -> Exit {
        let hit = self.limit_hit.as_ref().and_then(|hit| hit.get().copied());
        let reason = hit.filter(|_| exit.reason == ExitReason::Signalled).unwrap_or(exit.reason);
        Exit { reason, ..exit }
    }

    /// The guest keeps commands within their limits. One that does not was taken over, and is ended.
    fn count(&mut self, bytes: usize) -> Result<(), RunError> {
        let Some(room) = self.room.checked_sub(bytes as u64) else {
            let reason = "it sent more output than its command may print".to_owned();
            (self.end_sandbox)(EndReason::GuestDied(reason.clone()));
            return Err(RunError::GuestDied(reason));
        };
        self.room = room;
        Ok(())
    }

    /// The guest did not enforce the deadline. Kills the command, and the second time the whole sandbox. One that
    /// stands still cannot enforce anything: it will when it goes on.
    fn overdue(&mut self) -> Option<Exit> {
        if self.live.link.is_held() {
            return Some(TIMED_OUT);
        }
        if self.overdue == Overdue::No {
            self.overdue = Overdue::Signalled;
            self.deadline = Some(Instant::now() + GRACE);
            let request = Request::Signal { exec: self.id.clone(), signal: SIGKILL };
            if let Ok(stream) = self.live.link.open(request, &[]) {
                tokio::spawn(stream.drain(|_, _| {}));
            }
            return None;
        }
        (self.end_sandbox)(EndReason::GuestDied("it did not end a command whose time was up".to_owned()));
        Some(TIMED_OUT)
    }

    /// Waits for the end and keeps all output, which the command's own limit bounds.
    pub async fn collect(mut self) -> Result<Collected, RunError> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        loop {
            match self.next().await? {
                Output::Bytes { part: Part::Stderr, bytes, .. } => stderr.extend(bytes),
                Output::Bytes { bytes, .. } => stdout.extend(bytes),
                Output::Exited(exit) => return Ok(Collected { stdout, stderr, exit }),
                Output::Started { .. } | Output::Dropped(_) => {}
            }
        }
    }
}

fn died(error: LinkError) -> RunError {
    match error {
        LinkError::Closed(reason) => RunError::GuestDied(reason),
        other => RunError::Use(other.into()),
    }
}
