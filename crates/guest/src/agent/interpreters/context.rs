//! Requests about contexts: create, list, interrupt, restart, close.

use sandling_protocol::{CellStatus, ContextInfo, ContextSpec, Failure, FailureKind, Language, Response, StreamId};

use crate::agent::state::Agent;
use crate::exec::output::Log;
use crate::exec::{Pipes, Setting, check_id};
use crate::failure::{failure, io_failure};
use crate::interpreters::{Context, Role, context_activation, needs_fresh_start};
use crate::sys::children;

const MOST_CONTEXTS: usize = 16;

impl Agent {
    /// Creates a context; the stream ends when its interpreter is ready. An id that exists is not created again.
    pub fn create_context(&mut self, stream: StreamId, spec: ContextSpec) -> Result<(), Failure> {
        check_id(&spec.id)?;
        if spec.language == Language::Bash {
            return Err(failure(FailureKind::Unsupported, "bash has no contexts; use python or node"));
        }
        if let Ok(existing) = self.contexts.find(&spec.id) {
            let key = existing.key;
            self.answer_with_context(stream, key);
            return Ok(());
        }
        if self.contexts.all.len() >= MOST_CONTEXTS {
            return Err(failure(
                FailureKind::Busy,
                format!("there are {MOST_CONTEXTS} contexts already; close one first"),
            ));
        }
        self.contexts.last_key += 1;
        let key = self.contexts.last_key;
        let context = Context {
            key,
            spec,
            interpreter: None,
            pipes: Pipes::default(),
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

    /// Gives a context an interpreter: a spare, or a new one.
    pub fn start_interpreter(&mut self, key: u64) -> Result<(), Failure> {
        let Some(context) = self.contexts.get(key) else {
            return Ok(());
        };
        let spec = context.spec.clone();
        let setting = Setting::new(&self.variables, spec.user.as_deref(), &spec.env, spec.cwd.as_deref())?;
        setting.check_directory()?;
        let warm = if needs_fresh_start(&setting.variables) { None } else { self.claim(spec.language) };
        let role = Role::Context { context: key };
        let gone = || failure(FailureKind::Other, "the interpreter could not be started");
        let interpreter = match warm {
            Some(interpreter) => interpreter,
            None => self.start_driver(spec.language, role, &setting.variables)?,
        };
        let found = self.interpreters.get(interpreter).ok_or_else(gone)?;
        found.role = role;
        // The agent's end of stdin is closed, so that a read finds the end.
        let pipes = found.stdio.take().ok_or_else(gone)?.pipes;
        let prepared = self.prepared(interpreter, &setting);
        self.send_line(interpreter, &context_activation(&setting, &prepared));
        let Some(context) = self.contexts.get(key) else { return Ok(()) };
        (context.interpreter, context.pipes, context.cwd) = (Some(interpreter), pipes, setting.directory);
        context.watch(&self.poller).map_err(|error| io_failure("waiting for the interpreter", &error))
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

    /// The interpreter could not be activated. A new context is removed with it.
    pub fn context_refused(&mut self, key: u64, reason: &str) {
        let failure = failure(FailureKind::Other, reason);
        let Some(context) = self.contexts.get(key) else {
            return;
        };
        let made = context.made;
        let waiting = context.waiting.take();
        if !made {
            // A cell that was sent before the context was ready.
            self.end_cell(key, CellStatus::Died, None, false);
            self.remove_context(key);
        }
        if let Some(stream) = waiting {
            self.streams.end(stream, Err(failure));
        }
    }

    fn answer_with_context(&mut self, stream: StreamId, key: u64) {
        let info = self.context_info(key);
        let result =
            info.map(Response::Context).ok_or_else(|| failure(FailureKind::NotFound, "the context was closed"));
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
        let key = self.contexts.find(id)?.key;
        self.interrupt_cell(key);
        Ok(Response::Done)
    }

    /// Kills a context's interpreter and its children.
    pub fn kill_context(&mut self, key: u64) {
        let interpreter = self.contexts.get(key).and_then(|context| context.interpreter);
        let Some(pid) = interpreter.and_then(|key| self.interpreters.get(key)).and_then(|found| found.pid) else {
            return;
        };
        // Fails only for a process that has ended, which the agent is about to notice.
        drop(children::signal_group(pid, libc::SIGKILL));
    }

    /// Replaces a context's interpreter; the stream ends when the new one is ready.
    pub fn restart_context(&mut self, stream: StreamId, id: &str) -> Result<(), Failure> {
        let key = self.contexts.find(id)?.key;
        self.stop_interpreter(key);
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
        self.stop_interpreter(key);
        if let Some(stream) = self.remove_context(key) {
            self.streams.end(stream, Err(failure(FailureKind::NotFound, "the context was closed")));
        }
        Ok(Response::Done)
    }

    fn remove_context(&mut self, key: u64) -> Option<StreamId> {
        self.contexts.all.remove(&key)?.waiting
    }

    /// Ends a context's interpreter on request, and the cell that runs in it.
    fn stop_interpreter(&mut self, key: u64) {
        if let Some(interpreter) = self.contexts.get(key).and_then(|context| context.interpreter.take()) {
            self.drop_interpreter(interpreter);
        }
        self.drain_context(key);
        self.end_cell(key, CellStatus::Died, None, true);
        if let Some(context) = self.contexts.get(key) {
            context.pipes = Pipes::default();
        }
    }

    /// Gives up an interpreter that ends. A cell that was sent to it would fail without having run.
    pub fn notice_end(&mut self, key: u64) {
        let Some(interpreter) = self.contexts.get(key).and_then(|context| context.interpreter) else { return };
        let pid = self.interpreters.get(interpreter).and_then(|interpreter| interpreter.pid);
        if pid.is_some_and(children::is_ending) {
            self.stop_interpreter(key);
        }
    }

    /// A context's interpreter has ended by itself. If a cell was running, a new one is started at once.
    pub fn context_lost_interpreter(&mut self, key: u64, out_of_memory: bool) {
        self.drain_context(key);
        let Some(context) = self.contexts.get(key) else {
            return;
        };
        context.interpreter = None;
        context.pipes = Pipes::default();
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
        // If that fails, the next cell retries and reports the error.
        let _ = self.start_interpreter(key);
    }
}
