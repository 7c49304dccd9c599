//! A command's bytes: from its pipes to the streams that look at it, and from streams to its stdin.

use sandling_protocol::StreamId;

use super::output::{Memory, Verdict};
use super::record::{Exec, Pipe};
use crate::agent::{Agent, READ_BYTES};
use crate::streams::{Kind, Pumped};
use crate::sys::fds::{self, Got};
use crate::sys::poller::{Interest, Poller, Source};

/// A log this long makes it worth looking at what all commands hold.
const NOTABLE_BYTES: usize = 1024 * 1024;

impl Agent {
    /// Something can be read from a command.
    pub fn exec_readable(&mut self, key: u64, pipe: Pipe) {
        self.hold_up_or_go_on(key);
        let memory = self.memory_for(key);
        let Some(exec) = self.execs.get(key).filter(|exec| !exec.held_up) else {
            return;
        };
        let Some((fd, part)) = exec.pipes.fd(pipe) else {
            return;
        };
        match fds::read(fd, &mut self.buffer) {
            Got::NothingYet => {}
            Got::End => {
                exec.pipes.close(pipe);
                self.end_of_output(key);
            }
            Got::Bytes(length) => {
                let verdict = exec.output.take(part, &self.buffer[..length], memory);
                if verdict == Verdict::OverLimit {
                    self.over_limit(key);
                }
                self.pump_viewers(key);
            }
        }
    }

    fn memory_for(&mut self, key: u64) -> Memory {
        match self.execs.get(key) {
            Some(exec) if exec.output.log.weight() > NOTABLE_BYTES => {
                self.execs.stay_within_budget();
                self.execs.memory()
            }
            _ => Memory::Enough,
        }
    }

    /// Sends a command's new output to every stream that looks at it.
    pub fn pump_viewers(&mut self, key: u64) {
        let viewers = self.execs.get(key).map(|exec| exec.viewers.clone()).unwrap_or_default();
        for stream in viewers {
            self.pump_viewer(stream);
        }
    }

    /// Sends one stream what it has not seen; ends it after the last byte of a command that has ended.
    pub fn pump_viewer(&mut self, stream: StreamId) {
        let Some(Kind::Viewer { exec: key, position, .. }) = self.streams.get(stream).map(|open| &open.kind) else {
            return;
        };
        let (key, position) = (*key, *position);
        let Some(exec) = self.execs.get(key) else {
            return;
        };
        let (pumped, now) = self.streams.pump(stream, &exec.output.log, position);
        exec.output.sent = exec.output.sent.max(now);
        if let Some(Kind::Viewer { position, .. }) = self.streams.get(stream).map(|open| &mut open.kind) {
            *position = now;
        }
        if pumped == Pumped::NeedsRoom {
            self.starved.insert(stream);
        }
        if let Some(exit) = exec.exit.as_ref().filter(|_| now >= exec.output_end) {
            let response = sandling_protocol::Response::Exited(exit.clone());
            exec.viewers.retain(|viewer| *viewer != stream);
            self.streams.end(stream, Ok(response));
        }
        self.hold_up_or_go_on(key);
    }

    /// A stream no longer looks at a command.
    pub fn viewer_left(&mut self, stream: StreamId, key: u64) {
        if let Some(exec) = self.execs.get(key) {
            exec.viewers.retain(|viewer| *viewer != stream);
            exec.stdin.disown(stream);
        }
        self.hold_up_or_go_on(key);
    }

    /// Stops reading a command's pipes while a stream would lose bytes by it, and reads again afterwards.
    fn hold_up_or_go_on(&mut self, key: u64) {
        let memory = self.memory_for(key);
        let Some(exec) = self.execs.get(key) else {
            return;
        };
        let slowest = exec.viewers.iter().filter_map(|viewer| match self.streams.get(*viewer)?.kind {
            Kind::Viewer { position, .. } => Some(position),
            _ => None,
        });
        let hold_up =
            slowest.min().is_some_and(|position| exec.output.should_wait_for(position, memory, READ_BYTES as u64));
        if hold_up != exec.held_up {
            exec.held_up = hold_up;
            set_reading(&self.poller, exec);
        }
    }

    /// Bytes for a command's stdin.
    pub fn exec_input(&mut self, stream: StreamId, key: u64, bytes: Vec<u8>) {
        if let Some(exec) = self.execs.get(key) {
            exec.stdin.add(stream, bytes);
        }
        self.exec_writable(key);
    }

    pub fn exec_input_finished(&mut self, key: u64) {
        if let Some(exec) = self.execs.get(key) {
            exec.stdin.finish();
        }
        self.exec_writable(key);
    }

    pub fn exec_writable(&mut self, key: u64) {
        let Some(exec) = self.execs.get(key) else {
            return;
        };
        let written = exec.stdin.write();
        exec.stdin.wait(&self.poller, Source::ExecStdin(key), written.blocked);
        for (stream, bytes) in written.consumed {
            self.streams.consumed(stream, bytes);
        }
    }

    /// Swallows what is still printed by processes whose command is forgotten, so that they do not die of it.
    pub fn discard(&mut self, key: u64) {
        let Some(fd) = self.discarded.get(&key) else {
            return;
        };
        if fds::read(fd, &mut self.buffer) == Got::End {
            self.discarded.remove(&key);
        }
    }
}

fn set_reading(poller: &Poller, exec: &Exec) {
    for (pipe, source) in [(Pipe::First, Source::ExecStdout(exec.key)), (Pipe::Second, Source::ExecStderr(exec.key))] {
        let Some((fd, _)) = exec.pipes.fd(pipe) else {
            continue;
        };
        // Taken out altogether: epoll reports a hang-up even to those who wait for nothing.
        if exec.held_up {
            poller.remove(fd);
        } else if !exec.unheard {
            let _ = poller.add(fd, source, Interest::Read);
        }
    }
}
