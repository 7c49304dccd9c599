//! The end of a command, by itself or by a limit.

use std::time::Duration;

use sandling_protocol::{Exit, ExitReason, Failure};

use crate::agent::state::Agent;
use crate::cgroup::Cgroup;
use crate::exec::{BOTH, Exec};
use crate::sys::children::Ending;
use crate::sys::poller::{Interest, Source};
use crate::timers::Timer;

/// How long the output of a command may take to arrive after its end, if another process still has its terminal or its
/// pipes open. A command that starts another one and ends at once, as `setsid -f` does, still shows its output.
const OUTPUT_GRACE: Duration = Duration::from_millis(150);

/// How long after a command was killed the agent checks for a fork bomb.
const RUNAWAY_CHECK: Duration = Duration::from_secs(1);

impl Agent {
    /// Kills a command that still runs. The reason is reported if the kill is what ends it.
    pub fn end_exec(&mut self, key: u64, reason: ExitReason) {
        let Some(exec) = self.execs.get(key) else {
            return;
        };
        if exec.exit.is_some() || exec.ending.is_some() || exec.ended_by_us.is_some() {
            return;
        }
        exec.ended_by_us = Some(reason);
        if exec.signal(libc::SIGKILL).is_none() {
            self.cancel_waiting(key);
        }
        // A fork bomb forks faster than a process group can be signalled; its control group catches it now or soon.
        if let Some(cgroup) = self.execs.get(key).and_then(|exec| exec.cgroup.as_mut()) {
            self.cgroups.condemn(cgroup);
            self.timers.set(RUNAWAY_CHECK, Timer::Runaways);
        }
    }

    /// Ends a command that still waits for its interpreter, as if it had been killed.
    fn cancel_waiting(&mut self, key: u64) {
        if let Some(interpreter) = self.execs.get(key).and_then(|exec| exec.interpreter.take()) {
            self.drop_interpreter(interpreter);
        }
        self.exec_ended(key, Ending::Signal(libc::SIGKILL));
    }

    /// The command's process has ended, or has reported that it will.
    pub fn exec_ended(&mut self, key: u64, ending: Ending) {
        let Some(exec) = self.execs.get(key).filter(|exec| exec.exit.is_none() && exec.ending.is_none()) else {
            return;
        };
        exec.ending = Some(ending);
        // The process of an interpreter may still be about to end, with its pipes open and nothing to add to them.
        if exec.interpreter.is_none() && exec.pipes.terminal().is_none() {
            exec.drain(&mut self.buffer);
        }
        if exec.pipes.are_closed() || (exec.interpreter.is_some() && exec.pipes.terminal().is_none()) {
            self.finish_exec(key);
        } else {
            self.timers.set(OUTPUT_GRACE, Timer::OutputGrace(key));
        }
    }

    /// Finishes a command whose process has ended. Its output ends with what its pipes hold now.
    pub fn finish_exec(&mut self, key: u64) {
        let Some(exec) = self.execs.get(key) else {
            return;
        };
        let Some(ending) = exec.ending.take() else {
            return;
        };
        exec.drain(&mut self.buffer);
        exec.output_end = exec.output.log.end();
        exec.exit = Some(exit_of(exec, ending));
        exec.stdin.close();
        let interpreter = exec.interpreter.take();
        self.cgroups.give_back(exec.cgroup.take());
        if let Some(interpreter) = interpreter {
            self.refill_soon(interpreter);
            self.forget_interpreter(interpreter);
        }
        self.pump_viewers(key);
        self.execs.stay_within_budget();
        for old in self.execs.too_old() {
            self.forget_exec(old);
        }
    }

    /// Ends the streams of a command that could not be started, and frees its id.
    pub fn exec_failed(&mut self, key: u64, failure: &Failure) {
        let Some(exec) = self.execs.remove(key) else {
            return;
        };
        for stream in exec.viewers {
            self.streams.end(stream, Err(failure.clone()));
        }
        self.cgroups.give_back(exec.cgroup);
    }

    /// Deletes a finished command's record. The agent still reads and discards the output of its background processes.
    pub fn forget_exec(&mut self, key: u64) {
        let Some(mut exec) = self.execs.remove(key) else {
            return;
        };
        for fd in BOTH.into_iter().filter_map(|pipe| exec.pipes.close(pipe)) {
            self.last_discarded += 1;
            let number = self.last_discarded;
            self.poller.remove(&fd);
            if self.poller.add(&fd, Source::Discarded(number), Interest::Read).is_ok() {
                self.discarded.insert(number, fd);
            }
        }
    }
}

fn exit_of(exec: &Exec, ending: Ending) -> Exit {
    let (code, signal) = match ending {
        Ending::Code(code) => (code, None),
        Ending::Signal(signal) => (128 + signal, Some(signal)),
    };
    let killed = signal == Some(libc::SIGKILL);
    let out_of_memory = || exec.cgroup.as_ref().is_some_and(Cgroup::was_out_of_memory);
    let reason = match (exec.ended_by_us, signal) {
        (Some(reason), Some(_)) if killed => reason,
        (None, Some(_)) if killed && out_of_memory() => ExitReason::OutOfMemory,
        (_, Some(_)) => ExitReason::Signalled,
        (_, None) => ExitReason::Exited,
    };
    Exit {
        code,
        signal,
        reason,
        duration_ms: exec.started.elapsed().as_millis() as u64,
        stdout_bytes: exec.output.stdout_bytes,
        stderr_bytes: exec.output.stderr_bytes,
        dropped_bytes: exec.output.dropped_bytes,
    }
}
