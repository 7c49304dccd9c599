//! Contexts: made, listed, interrupted, restarted, closed.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use sandling_protocol::{
    CellStatus, ContextInfo, ContextSpec, Failure, FailureKind, Language, Response, Stdin as StdinSpec, StreamId,
};

use super::activation::{context_activation, needs_fresh_start};
use super::cell::Cell;
use super::drivers::Mode;
use super::script::unsupported_if_missing;
use super::table::Role;
use crate::agent::{Agent, Owner};
use crate::exec::output::Log;
use crate::exec::{Ends, Pipes, Setting, Started, check_id};
use crate::failure::{failure, io_failure, not_found};
use crate::sys::poller::{Interest, Source};
use crate::sys::{children, socket};

const MOST_CONTEXTS: usize = 16;

/// Keys grow, so their order is the order of making.
#[derive(Default)]
pub struct Contexts {
    all: BTreeMap<u64, Context>,
    last_key: u64,
}

pub struct Context {
    key: u64,
    spec: ContextSpec,
    /// Absent after one that died between cells; the next cell gets a new one.
    pub interpreter: Option<u64>,
    pub stdout: Option<OwnedFd>,
    pub stderr: Option<OwnedFd>,
    pub cells: u64,
    pub restarts: u32,
    pub cell: Option<Cell>,
    /// Printed between cells; the next one shows it.
    pub between: Log,
    /// Told when the interpreter is ready.
    waiting: Option<StreamId>,
    /// Has had a working interpreter; before that, a failure means that there is no context.
    made: bool,
    /// Where its interpreter was started.
    cwd: String,
}

impl Contexts {
    pub fn get(&mut self, key: u64) -> Option<&mut Context> {
        self.all.get_mut(&key)
    }

    pub fn find(&mut self, id: &str) -> Result<&mut Context, Failure> {
        self.all.values_mut().find(|context| context.spec.id == id).ok_or_else(|| not_found("context", id))
    }

    /// Nobody listens for this any more.
    pub fn forget_waiting(&mut self, stream: StreamId) {
        for context in self.all.values_mut().filter(|context| context.waiting == Some(stream)) {
            context.waiting = None;
        }
    }
}

impl Context {
    pub fn key(&self) -> u64 {
        self.key
    }
}

impl Agent {
    /// Makes a context; the stream ends when its interpreter is ready. The same id is not made twice.
    pub fn create_context(&mut self, stream: StreamId, spec: ContextSpec) -> Result<(), Failure> {
        check_id(&spec.id)?;
        if spec.language == Language::Bash {
            return Err(failure(FailureKind::Unsupported, "there are no contexts for bash"));
        }
        if let Ok(existing) = self.contexts.find(&spec.id) {
            let key = existing.key;
            self.answer_with_context(stream, key);
            return Ok(());
        }
        if self.contexts.all.len() >= MOST_CONTEXTS {
            return Err(failure(FailureKind::Busy, format!("there are {MOST_CONTEXTS} contexts already")));
        }
        self.contexts.last_key += 1;
        let key = self.contexts.last_key;
        let context = Context {
            key,
            spec,
            interpreter: None,
            stdout: None,
            stderr: None,
            cells: 0,
            restarts: 0,
            cell: None,
            between: Log::new(),
            waiting: Some(stream),
            made: false,
            cwd: String::new(),
        };
        self.contexts.all.insert(key, context);
        self.start_interpreter(key).inspect_err(|_| drop(self.contexts.all.remove(&key)))
    }

    /// Gives a context an interpreter: a spare, or one started for it.
    pub fn start_interpreter(&mut self, key: u64) -> Result<(), Failure> {
        let Some(context) = self.contexts.get(key) else {
            return Ok(());
        };
        let spec = context.spec.clone();
        let setting = Setting::new(&self.variables, spec.user.as_deref(), &spec.env, spec.cwd.as_deref())?;
        setting.check_directory()?;
        let warm = if needs_fresh_start(&setting.variables) { None } else { self.claim(spec.language) };
        let interpreter = match warm {
            Some(interpreter) => self.take_over(key, interpreter)?,
            None => self.start_cold_context(key, spec.language, &setting)?,
        };
        let knows = self.knows(interpreter, &setting);
        self.tell(interpreter, &context_activation(&setting, &knows));
        if let Some(context) = self.contexts.get(key) {
            context.interpreter = Some(interpreter);
            context.cwd = setting.directory.clone();
            for (fd, source) in
                [(&context.stdout, Source::ContextStdout(key)), (&context.stderr, Source::ContextStderr(key))]
            {
                if let Some(fd) = fd {
                    let added = self.poller.add(fd, source, Interest::Read);
                    added.map_err(|error| io_failure("waiting for the interpreter", &error))?;
                }
            }
        }
        Ok(())
    }

    fn take_over(&mut self, key: u64, interpreter: u64) -> Result<u64, Failure> {
        let gone = || failure(FailureKind::Other, "the interpreter could not be started");
        let found = self.interpreters.get(interpreter).ok_or_else(gone)?;
        found.role = Role::Context { context: key };
        let streams = found.streams.take().ok_or_else(gone)?;
        let context = self.contexts.get(key).ok_or_else(gone)?;
        // Its stdin is let go of: reading it finds the end.
        (context.stdout, context.stderr) = (Some(streams.stdout), Some(streams.stderr));
        Ok(interpreter)
    }

    fn start_cold_context(&mut self, key: u64, language: Language, setting: &Setting) -> Result<u64, Failure> {
        let (ours, theirs) = socket::pair().map_err(|error| io_failure("an interpreter", &error))?;
        let ours_setting = Setting::ours(setting.variables.clone());
        let plan = self.cold_plan(language, Mode::Context, &ours_setting, theirs)?;
        let started = self
            .start_program(&plan, &ours_setting, None, StdinSpec::Closed)
            .map_err(|failure| unsupported_if_missing(failure, &plan))?;
        let Started { pid, ends: Ends { pipes, .. }, cgroup, .. } = started;
        let interpreter = self.add_cold(language, Role::Context { context: key }, pid, ours)?;
        if let Some(found) = self.interpreters.get(interpreter) {
            found.cgroup = cgroup;
        }
        if let Some(pid) = pid {
            self.children.insert(pid, Owner::Interpreter(interpreter));
        }
        if let (Some(context), Pipes::Apart { stdout, stderr }) = (self.contexts.get(key), pipes) {
            (context.stdout, context.stderr) = (stdout, stderr);
        }
        Ok(interpreter)
    }

    /// The interpreter is ready for cells.
    pub fn context_is_ready(&mut self, key: u64) {
        let Some(context) = self.contexts.get(key) else {
            return;
        };
        context.made = true;
        if let Some(stream) = context.waiting.take() {
            self.answer_with_context(stream, key);
        }
    }

    /// The interpreter could not become this context's. A new context is gone with it.
    pub fn context_refused(&mut self, key: u64, reason: &str) {
        let failure = failure(FailureKind::Other, reason);
        let Some(context) = self.contexts.get(key) else {
            return;
        };
        let made = context.made;
        let waiting = context.waiting.take();
        if !made {
            // One that was sent early.
            self.end_cell(key, CellStatus::Died, None, false);
            self.remove_context(key);
        }
        if let Some(stream) = waiting {
            self.streams.end(stream, Err(failure));
        }
    }

    fn answer_with_context(&mut self, stream: StreamId, key: u64) {
        let info = self.context_info(key);
        let result = info.map(Response::Context).ok_or_else(|| failure(FailureKind::NotFound, "it was closed"));
        self.streams.end(stream, result);
    }

    fn context_info(&mut self, key: u64) -> Option<ContextInfo> {
        let context = self.contexts.get(key)?;
        let interpreter = context.interpreter.and_then(|interpreter| self.interpreters.get(interpreter));
        Some(ContextInfo {
            id: context.spec.id.clone(),
            language: context.spec.language,
            pid: interpreter.and_then(|interpreter| interpreter.pid).unwrap_or(0),
            cells: context.cells,
            busy: context.cell.is_some(),
            restarts: context.restarts,
            cwd: context.cwd.clone(),
        })
    }

    pub fn list_contexts(&mut self) -> Response {
        let keys: Vec<u64> = self.contexts.all.keys().copied().collect();
        Response::Contexts { contexts: keys.into_iter().filter_map(|key| self.context_info(key)).collect() }
    }

    /// Interrupts a cell; between cells there is nothing to interrupt.
    pub fn interrupt(&mut self, id: &str) -> Result<Response, Failure> {
        let context = self.contexts.find(id)?;
        if context.cell.is_some() {
            let key = context.key;
            self.signal_context(key, libc::SIGINT);
        }
        Ok(Response::Done)
    }

    pub fn signal_context(&mut self, key: u64, signal: i32) {
        let interpreter = self.contexts.get(key).and_then(|context| context.interpreter);
        let Some(pid) = interpreter.and_then(|key| self.interpreters.get(key)).and_then(|found| found.pid) else {
            return;
        };
        // Only SIGKILL is for its children too; it has just been asked to stop and did not.
        let sent = match signal {
            libc::SIGKILL => children::signal_group(pid, signal),
            _ => children::signal_process(pid, signal),
        };
        // It fails only for a process that has gone, and then its end is about to be noticed.
        drop(sent);
    }

    /// A new interpreter under the same id; the stream ends when it is ready.
    pub fn restart_context(&mut self, stream: StreamId, id: &str) -> Result<(), Failure> {
        let key = self.contexts.find(id)?.key;
        self.let_interpreter_go(key);
        if let Some(context) = self.contexts.get(key) {
            context.restarts += 1;
            context.between.clear();
            let waited = context.waiting.replace(stream);
            if let Some(waited) = waited {
                self.streams.end(waited, Err(failure(FailureKind::Busy, "the context was restarted again")));
            }
        }
        self.start_interpreter(key)
    }

    pub fn close_context(&mut self, id: &str) -> Result<Response, Failure> {
        let key = self.contexts.find(id)?.key;
        self.let_interpreter_go(key);
        if let Some(stream) = self.remove_context(key) {
            self.streams.end(stream, Err(failure(FailureKind::NotFound, "the context was closed")));
        }
        Ok(Response::Done)
    }

    fn remove_context(&mut self, key: u64) -> Option<StreamId> {
        self.contexts.all.remove(&key)?.waiting
    }

    /// Ends a context's interpreter on request. A cell that runs in it dies with it.
    fn let_interpreter_go(&mut self, key: u64) {
        if let Some(interpreter) = self.contexts.get(key).and_then(|context| context.interpreter.take()) {
            self.drop_interpreter(interpreter);
        }
        self.drain_context(key);
        self.end_cell(key, CellStatus::Died, None, true);
        if let Some(context) = self.contexts.get(key) {
            (context.stdout, context.stderr) = (None, None);
        }
    }

    /// A context's interpreter has ended by itself. In the middle of a cell it is replaced at once.
    pub fn context_lost_interpreter(&mut self, key: u64, out_of_memory: bool) {
        self.drain_context(key);
        let Some(context) = self.contexts.get(key) else {
            return;
        };
        context.interpreter = None;
        (context.stdout, context.stderr) = (None, None);
        if !context.made || context.waiting.is_some() {
            return self.context_refused(key, "the interpreter ended while it was starting");
        }
        let Some(cell) = &context.cell else {
            return;
        };
        let status = match cell.stopping {
            Some(status) => status,
            None if out_of_memory => CellStatus::OutOfMemory,
            None => CellStatus::Died,
        };
        context.restarts += 1;
        self.end_cell(key, status, None, true);
        // If that fails, the next cell tries again and says why.
        let _ = self.start_interpreter(key);
    }
}
