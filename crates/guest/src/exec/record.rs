//! The record of one command, running or finished.

use std::time::Instant;

use sandling_protocol::{ExecInfo, ExecState, Exit, ExitReason, StreamId, TerminalSize};

use super::output::{Memory, Output};
use super::pipes::Pipes;
use super::stdin::Stdin;
use crate::cgroup::Cgroup;
use crate::sys::children::{self, Ending};
use crate::sys::fds;
use crate::sys::poller::{Poller, Source};

pub struct Exec {
    pub key: u64,
    pub id: String,
    pub command: String,
    /// `None` while its interpreter is being forked.
    pub pid: Option<u32>,
    /// The process group in which it started.
    pub group: Option<u32>,
    pub started_unix_ms: u64,
    pub started: Instant,
    pub output: Output,
    pub pipes: Pipes,
    pub stdin: Stdin,
    pub cgroup: Option<Cgroup>,
    /// Why the agent killed it, if it did.
    pub ended_by_us: Option<ExitReason>,
    /// How its process ended, until its output has been read.
    pub ending: Option<Ending>,
    pub exit: Option<Exit>,
    /// Where its output ended. Later bytes come from its background processes.
    pub output_end: u64,
    pub viewers: Vec<StreamId>,
    /// The last change of its terminal's size, while it may still be undone.
    pub resized: Option<Resized>,
    /// It is a script that has just begun: its output is read when it ends or after [`crate::timers::Timer::ListenToExec`].
    pub unread: bool,
    /// Its pipes are not read, because a stream must catch up first.
    pub paused: bool,
    /// The interpreter that runs its code, while it can still refuse the activation.
    pub interpreter: Option<u64>,
}

#[derive(Clone, Copy)]
pub struct Resized {
    from: TerminalSize,
    to: TerminalSize,
    checks_left: u8,
}

impl Exec {
    pub fn info(&self) -> ExecInfo {
        let state = self.exit.clone().map_or(ExecState::Running, ExecState::Exited);
        ExecInfo {
            id: self.id.clone(),
            pid: self.pid.unwrap_or(0),
            command: self.command.clone(),
            started_unix_ms: self.started_unix_ms,
            output_bytes: self.output.stdout_bytes + self.output.stderr_bytes,
            state,
        }
    }

    /// Signals its process and all others of its group.
    pub fn signal(&self, signal: i32) -> Option<std::io::Result<()>> {
        let pid = self.pid?;
        Some(match self.group.filter(|group| *group != pid) {
            Some(group) => children::signal_member(group, pid, signal),
            None => children::signal_group(pid, signal),
        })
    }

    /// Reads the rest of its output.
    pub fn drain(&mut self, buffer: &mut [u8]) {
        let Self { pipes, output, .. } = self;
        pipes.drain(buffer, |part, bytes| {
            let _ = output.take(part, bytes, Memory::LastBytes);
        });
    }

    /// Waits for its output from now on.
    pub fn watch(&self, poller: &Poller) -> std::io::Result<()> {
        self.pipes.watch(poller, [Source::ExecStdout(self.key), Source::ExecStderr(self.key)])
    }

    pub fn resize(&mut self, to: TerminalSize) -> Option<std::io::Result<()>> {
        let terminal = self.pipes.terminal()?;
        let from = fds::size(terminal);
        let resized = fds::resize(terminal, to);
        self.resized = from.ok().filter(|from| *from != to).map(|from| Resized { from, to, checks_left: 5 });
        Some(resized)
    }

    /// Sets the terminal's size once more if it has the one from before the last resize again. With each prompt, readline
    /// reads the size and writes it back, and so undoes a resize that comes between the two. Returns whether to check again.
    pub fn keep_size(&mut self) -> bool {
        let (Some(resized), Some(terminal)) = (&mut self.resized, self.pipes.terminal()) else { return false };
        resized.checks_left -= 1;
        if fds::size(terminal).is_ok_and(|size| size == resized.from) {
            // The terminal may have closed since.
            let _ = fds::resize(terminal, resized.to);
        }
        let again = resized.checks_left > 0;
        if !again {
            self.resized = None;
        }
        again
    }
}
