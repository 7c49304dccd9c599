//! Running a cell in a context's interpreter, and forwarding its output and results.

use std::time::{Duration, Instant};

use sandling_protocol::{CellSpec, CellStatus, Failure, FailureKind, Language, OnLimit, Part, StreamId};

use crate::agent::state::{Agent, READ_BYTES};
use crate::exec::output::{Log, Memory, Output, Verdict};
use crate::exec::{Pipe, text_of};
use crate::failure::failure;
use crate::interpreters::{Cell, Context, Message, Permit, Status};
use crate::streams::Kind;
use crate::sys::children;
use crate::sys::fds::{self, ReadResult};
use crate::timers::Timer;

/// How long a cell may take to stop after an interrupt, before its interpreter and its variables are lost. Most cells stop in
/// milliseconds; an emulated guest on a busy host needs more than a second.
const GRACE: Duration = Duration::from_secs(5);

/// Long enough for a cell to clean up: Python raises `KeyboardInterrupt` each time.
const NUDGE: Duration = Duration::from_millis(500);

/// The limit for the rich results of one cell, together.
const MOST_RESULT_BYTES: u64 = 32 * 1024 * 1024;

/// How much output that was printed between cells is kept.
const BETWEEN_BYTES: u64 = 64 * 1024;

impl Agent {
    pub fn run_cell(&mut self, stream: StreamId, spec: &CellSpec, code: &[u8]) -> Result<(), Failure> {
        let code = text_of(code)?;
        let context = self.contexts.find(&spec.context)?;
        if context.cell.is_some() {
            return Err(failure(FailureKind::Busy, format!("context {:?} is running a cell", spec.context)));
        }
        let key = context.key;
        self.notice_end(key);
        let context = self.contexts.find(&spec.context)?;
        if context.interpreter.is_none() {
            context.restarts += 1;
            self.start_interpreter(key)?;
        }
        let context = self.contexts.find(&spec.context)?;
        context.cells += 1;
        let number = context.cells;
        let mut output = Output::new(spec.output_limit, OnLimit::Kill);
        take_all(&mut output, &context.between);
        context.between = Log::new();
        let started = Instant::now();
        context.cell = Some(Cell {
            number,
            stream: Some(stream),
            output,
            result_bytes: 0,
            started,
            stopping: None,
            named: false,
            nudged: false,
            paused: false,
        });
        let interpreter = context.interpreter;
        self.streams.set_kind(stream, Kind::Cell { context: key });
        if let Some(timeout) = spec.timeout_ms {
            self.timers.set(Duration::from_millis(timeout), Timer::CellDeadline(key, number));
        }
        if let Some(interpreter) = interpreter {
            let mut message = serde_json::json!({ "cell": number, "code": code });
            if !spec.env.is_empty() {
                message["env"] = serde_json::json!(spec.env);
            }
            if spec.typescript {
                message["typescript"] = true.into();
            }
            let line = message.to_string();
            self.send_line(interpreter, line.as_bytes());
        }
        Ok(())
    }

    /// Handles a message from a context's interpreter.
    pub fn context_message(&mut self, key: u64, message: &Message<'_>) {
        if let Some(reason) = &message.failed {
            return self.context_refused(key, reason);
        }
        if message.activated {
            return self.context_is_ready(key);
        }
        if let Some(result) = message.result {
            let part = if message.value { Part::Value } else { Part::Results };
            self.cell_result(key, part, result.get());
        }
        let running = self.contexts.get(key).and_then(|context| context.cell.as_ref()).map(|cell| cell.number);
        if let (Some(number), Some(status)) = (message.done, message.status)
            && running == Some(number)
        {
            let status = match status {
                Status::Ok => CellStatus::Ok,
                Status::Error => CellStatus::Error,
                Status::Interrupted => CellStatus::Interrupted,
            };
            self.drain_context(key);
            self.end_cell(key, status, message.error.clone(), false);
        }
    }

    fn cell_result(&mut self, key: u64, part: Part, result: &str) {
        self.drain_context(key);
        let Some(cell) = self.contexts.get(key).and_then(|context| context.cell.as_mut()) else {
            return;
        };
        cell.result_bytes += result.len() as u64 + 1;
        if cell.result_bytes > MOST_RESULT_BYTES {
            cell.output.dropped_bytes += result.len() as u64 + 1;
            return;
        }
        cell.output.take_uncounted(part, format!("{result}\n").as_bytes());
        self.pump_cell(key);
    }

    /// A context's pipe is readable.
    pub fn context_readable(&mut self, key: u64, pipe: Pipe) {
        let Some(context) = self.contexts.get(key) else { return };
        let Some((fd, part)) = context.pipes.fd(pipe) else { return };
        match fds::read(fd, &mut self.buffer) {
            ReadResult::NothingYet => {}
            ReadResult::End => drop(context.pipes.close(pipe)),
            ReadResult::Bytes(length) => {
                let verdict =
                    take(&mut context.cell, &mut context.between, part, &self.buffer[..length], Memory::Enough);
                if verdict == Verdict::OverLimit {
                    self.stop_cell(key, CellStatus::OutputLimit);
                }
                self.pump_cell(key);
            }
        }
    }

    /// Reads everything that a context has printed so far.
    pub fn drain_context(&mut self, key: u64) {
        let Some(Context { pipes, cell, between, .. }) = self.contexts.get(key) else { return };
        // Output beyond the limit is dropped; the cell has ended, so it is not stopped for that.
        pipes.drain(&mut self.buffer, |part, bytes| {
            let _ = take(cell, between, part, bytes, Memory::LastBytes);
        });
    }

    /// Sends the running cell's stream the output that it has not been sent.
    pub fn pump_cell(&mut self, key: u64) {
        let Some(cell) = self.contexts.get(key).and_then(|context| context.cell.as_mut()) else {
            return;
        };
        let Some(stream) = cell.stream else {
            return self.pause_or_resume_cell(key, None);
        };
        let Some(now) = self.streams.pump(stream, &cell.output.log) else { return };
        cell.output.sent = cell.output.sent.max(now);
        self.pause_or_resume_cell(key, Some(now));
    }

    /// Detaches the stream from a cell, which keeps running.
    pub fn cell_listener_left(&mut self, key: u64) {
        if let Some(cell) = self.contexts.get(key).and_then(|context| context.cell.as_mut()) {
            cell.stream = None;
        }
        self.pump_cell(key);
    }

    /// Stops reading a cell's output while its stream would lose bytes.
    fn pause_or_resume_cell(&mut self, key: u64, position: Option<u64>) {
        let Some(context) = self.contexts.get(key) else {
            return;
        };
        let Some(cell) = &mut context.cell else {
            return;
        };
        let wait = |position| cell.output.should_wait_for(position, Memory::Enough, READ_BYTES as u64);
        let pause = position.is_some_and(wait);
        if pause == std::mem::replace(&mut cell.paused, pause) {
            return;
        }
        if pause {
            context.pipes.unwatch(&self.poller);
        } else {
            let _ = context.watch(&self.poller);
        }
    }

    /// Interrupts a cell, and kills its interpreter if that does not stop it.
    pub fn stop_cell(&mut self, key: u64, reason: CellStatus) {
        let Some(cell) = self.contexts.get(key).and_then(|context| context.cell.as_mut()) else {
            return;
        };
        if cell.stopping.is_some() {
            return;
        }
        cell.stopping = Some(reason);
        let number = cell.number;
        self.timers.set(GRACE, Timer::CellGrace(key, number));
        self.start_nudging(key, number);
    }

    /// Interrupts the running cell, for a client.
    pub fn interrupt_cell(&mut self, key: u64) {
        let Some(context) = self.contexts.get(key) else { return };
        let Some(cell) = &context.cell else { return };
        let number = cell.number;
        match context.spec.language {
            // It cannot be signalled just before its cell begins and while the cell awaits. No code can catch the interrupt.
            Language::Node => self.start_nudging(key, number),
            // Code can catch the interrupt and go on, so each one counts.
            Language::Python | Language::Bash => self.send_interrupt(key),
        }
    }

    /// Interrupts a cell now, and repeatedly until it stops.
    fn start_nudging(&mut self, key: u64, number: u64) {
        let Some(cell) = self.contexts.get(key).and_then(|context| context.cell.as_mut()) else { return };
        if std::mem::replace(&mut cell.nudged, true) {
            return self.send_interrupt(key);
        }
        self.nudge_cell(key, number);
    }

    pub fn nudge_cell(&mut self, key: u64, number: u64) {
        if self.runs_cell(key, number) {
            self.send_interrupt(key);
            self.timers.set(NUDGE, Timer::CellNudge(key, number));
        }
    }

    /// Names the running cell in a line, and signals its interpreter. Neither can stop a later cell.
    fn send_interrupt(&mut self, key: u64) {
        let Some(context) = self.contexts.get(key) else { return };
        let (Some(interpreter), Some(cell)) = (context.interpreter, &mut context.cell) else { return };
        let number = cell.number;
        if !std::mem::replace(&mut cell.named, true) {
            self.send_line(interpreter, serde_json::json!({ "interrupt": number }).to_string().as_bytes());
        }
        let Some(found) = self.interpreters.get(interpreter) else { return };
        let Some(pid) = found.pid else { return };
        if found.permit.as_ref().is_none_or(Permit::take) {
            // Fails only for a process that has ended, which the agent is about to notice.
            drop(children::signal_main_thread(pid, libc::SIGINT));
        }
    }

    pub fn cell_deadline(&mut self, key: u64, number: u64) {
        if self.runs_cell(key, number) {
            self.stop_cell(key, CellStatus::Timeout);
        }
    }

    pub fn cell_grace_is_over(&mut self, key: u64, number: u64) {
        if self.runs_cell(key, number) {
            self.kill_context(key);
        }
    }

    fn runs_cell(&mut self, key: u64, number: u64) -> bool {
        self.contexts.get(key).and_then(|context| context.cell.as_ref()).is_some_and(|cell| cell.number == number)
    }
}

fn take(cell: &mut Option<Cell>, between: &mut Log, part: Part, bytes: &[u8], memory: Memory) -> Verdict {
    match cell {
        Some(cell) => cell.output.take(part, bytes, memory),
        None => {
            between.append(part, bytes);
            between.trim(BETWEEN_BYTES);
            Verdict::Within
        }
    }
}

fn take_all(output: &mut Output, log: &Log) {
    let mut position = log.start();
    while let Some((part, bytes)) = log.read(position, READ_BYTES) {
        output.take(part, &bytes, Memory::Enough);
        position += bytes.len() as u64;
    }
}
