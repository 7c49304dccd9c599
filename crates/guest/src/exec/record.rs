//! The record of one command, running or finished.

use std::os::fd::OwnedFd;
use std::time::Instant;

use sandling_protocol::{ExecInfo, ExecState, Exit, ExitReason, Part, StreamId, TerminalSize};

use super::output::{Memory, Output};
use super::stdin::Stdin;
use crate::cgroup::Cgroup;
use crate::sys::children::Ending;
use crate::sys::fds;

/// The largest size that a process can give a pipe.
const LARGEST_PIPE_BYTES: usize = 1024 * 1024;

pub struct Exec {
    pub key: u64,
    pub id: String,
    pub command: String,
    /// `None` while its interpreter is being forked.
    pub pid: Option<u32>,
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
    /// It is a script that has just begun: its output is read when it ends or after [`crate::timers::Timer::ListenToExec`].
    pub unread: bool,
    /// Its pipes are not read, because a stream must catch up first.
    pub paused: bool,
    /// The interpreter that runs its code, while it can still refuse the activation.
    pub interpreter: Option<u64>,
}

/// The sources of a command's output. Each is open until its last writer has closed it.
pub enum Pipes {
    Apart { stdout: Option<OwnedFd>, stderr: Option<OwnedFd> },
    Terminal(Option<OwnedFd>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pipe {
    First,
    Second,
}

impl Pipes {
    pub fn fd(&self, pipe: Pipe) -> Option<(&OwnedFd, Part)> {
        match (self, pipe) {
            (Self::Apart { stdout, .. }, Pipe::First) => stdout.as_ref().map(|fd| (fd, Part::Stdout)),
            (Self::Apart { stderr, .. }, Pipe::Second) => stderr.as_ref().map(|fd| (fd, Part::Stderr)),
            (Self::Terminal(fd), Pipe::First) => fd.as_ref().map(|fd| (fd, Part::Terminal)),
            (Self::Terminal(_), Pipe::Second) => None,
        }
    }

    pub fn close(&mut self, pipe: Pipe) -> Option<OwnedFd> {
        match (self, pipe) {
            (Self::Apart { stdout: fd, .. } | Self::Terminal(fd), Pipe::First) => fd.take(),
            (Self::Apart { stderr: fd, .. }, Pipe::Second) => fd.take(),
            (Self::Terminal(_), Pipe::Second) => None,
        }
    }
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

    /// Reads everything that its pipes hold, with a limit, because a process may still be writing.
    pub fn drain(&mut self, buffer: &mut [u8]) {
        for pipe in [Pipe::First, Pipe::Second] {
            let mut left = LARGEST_PIPE_BYTES;
            while let Some((fd, part)) = self.pipes.fd(pipe)
                && left > 0
            {
                match fds::read(fd, buffer) {
                    fds::ReadResult::Bytes(length) => {
                        self.output.take(part, &buffer[..length], Memory::LastBytes);
                        left = left.saturating_sub(length);
                    }
                    fds::ReadResult::NothingYet => break,
                    fds::ReadResult::End => drop(self.pipes.close(pipe)),
                }
            }
        }
    }

    pub fn resize(&self, size: TerminalSize) -> Option<std::io::Result<()>> {
        match &self.pipes {
            Pipes::Terminal(Some(fd)) => Some(fds::resize(fd, size)),
            _ => None,
        }
    }
}
