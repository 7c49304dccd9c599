//! The pipes, or the terminal, from which the agent reads a process's output.

use std::io;
use std::os::fd::OwnedFd;

use sandling_protocol::Part;

use crate::sys::fds::{self, ReadResult};
use crate::sys::poller::{Interest, Poller, Source};

/// The largest size that a process can give a pipe.
const LARGEST_PIPE_BYTES: usize = 1024 * 1024;

pub const BOTH: [Pipe; 2] = [Pipe::First, Pipe::Second];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pipe {
    /// Stdout, or a terminal.
    First,
    /// Stderr.
    Second,
}

/// The sources of a process's output. Each is open until its last writer has closed it.
#[derive(Default)]
pub struct Pipes {
    first: Option<OwnedFd>,
    second: Option<OwnedFd>,
    is_terminal: bool,
}

impl Pipes {
    pub fn new(stdout: OwnedFd, stderr: OwnedFd) -> Self {
        Self { first: Some(stdout), second: Some(stderr), is_terminal: false }
    }

    pub fn of_terminal(terminal: OwnedFd) -> Self {
        Self { first: Some(terminal), second: None, is_terminal: true }
    }

    /// The terminal, if it is one and still open.
    pub fn terminal(&self) -> Option<&OwnedFd> {
        self.first.as_ref().filter(|_| self.is_terminal)
    }

    pub fn fd(&self, pipe: Pipe) -> Option<(&OwnedFd, Part)> {
        let (fd, part) = match pipe {
            Pipe::First if self.is_terminal => (&self.first, Part::Terminal),
            Pipe::First => (&self.first, Part::Stdout),
            Pipe::Second => (&self.second, Part::Stderr),
        };
        fd.as_ref().map(|fd| (fd, part))
    }

    pub fn close(&mut self, pipe: Pipe) -> Option<OwnedFd> {
        match pipe {
            Pipe::First => self.first.take(),
            Pipe::Second => self.second.take(),
        }
    }

    /// Whether every writer has closed its end.
    pub fn are_closed(&self) -> bool {
        self.first.is_none() && self.second.is_none()
    }

    /// Waits for output from now on; `sources` are the names of the two pipes.
    pub fn watch(&self, poller: &Poller, sources: [Source; 2]) -> io::Result<()> {
        for (pipe, source) in BOTH.into_iter().zip(sources) {
            if let Some((fd, _)) = self.fd(pipe) {
                poller.add(fd, source, Interest::Read)?;
            }
        }
        Ok(())
    }

    /// Stops waiting. An empty interest would not do, because epoll reports a hang-up even then.
    pub fn unwatch(&self, poller: &Poller) {
        for (fd, _) in BOTH.iter().filter_map(|pipe| self.fd(*pipe)) {
            poller.remove(fd);
        }
    }

    /// Reads everything that the pipes hold, with a limit, because a process may still be writing.
    pub fn drain(&mut self, buffer: &mut [u8], mut take: impl FnMut(Part, &[u8])) {
        for pipe in BOTH {
            let mut left = LARGEST_PIPE_BYTES;
            while let Some((fd, part)) = self.fd(pipe)
                && left > 0
            {
                match fds::read(fd, buffer) {
                    ReadResult::Bytes(length) => {
                        take(part, &buffer[..length]);
                        left = left.saturating_sub(length);
                    }
                    ReadResult::NothingYet => break,
                    ReadResult::End => drop(self.close(pipe)),
                }
            }
        }
    }
}
