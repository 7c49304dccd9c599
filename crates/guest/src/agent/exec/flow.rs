//! A command's bytes: from its pipes to the attached streams, and from streams to its stdin.

use sandling_protocol::{ExitReason, StreamId};

use crate::agent::state::{Agent, READ_BYTES};
use crate::exec::Pipe;
use crate::exec::output::{Memory, Verdict};
use crate::streams::Kind;
use crate::sys::fds::{self, ReadResult};
use crate::sys::poller::Source;

/// From this size of a log on, the agent checks how much memory all commands use.
const NOTABLE_BYTES: usize = 1024 * 1024;

impl Agent {
    /// A command's pipe is readable.
    pub fn exec_readable(&mut self, key: u64, pipe: Pipe) {
        self.pause_or_resume(key);
        let memory = self.memory_for(key);
        let Some(exec) = self.execs.get(key).filter(|exec| !exec.paused) else {
            return;
        };
        let Some((fd, part)) = exec.pipes.fd(pipe) else {
            return;
        };
        match fds::read(fd, &mut self.buffer) {
            ReadResult::NothingYet => {}
            ReadResult::End => {
                exec.pipes.close(pipe);
                if exec.pipes.are_closed() {
                    self.finish_exec(key);
                }
            }
            ReadResult::Bytes(length) => {
                let verdict = exec.output.take(part, &self.buffer[..length], memory);
                if verdict == Verdict::OverLimit {
                    self.end_exec(key, ExitReason::OutputLimit);
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

    /// Sends a command's new output to every attached stream.
    pub fn pump_viewers(&mut self, key: u64) {
        let viewers = self.execs.get(key).map(|exec| exec.viewers.clone()).unwrap_or_default();
        for stream in viewers {
            self.pump_viewer(stream);
        }
    }

    /// Sends a stream the output that it has not been sent; ends it after the last byte of a finished command.
    pub fn pump_viewer(&mut self, stream: StreamId) {
        let Some(&mut Kind::Viewer { exec: key, .. }) = self.streams.kind(stream) else { return };
        let Some(exec) = self.execs.get(key) else { return };
        let Some(now) = self.streams.pump(stream, &exec.output.log) else { return };
        exec.output.sent = exec.output.sent.max(now);
        if let Some(exit) = exec.exit.as_ref().filter(|_| now >= exec.output_end) {
            let response = sandling_protocol::Response::Exited(exit.clone());
            exec.viewers.retain(|viewer| *viewer != stream);
            self.streams.end(stream, Ok(response));
        }
        self.pause_or_resume(key);
    }

    /// Detaches a stream from a command.
    pub fn viewer_left(&mut self, stream: StreamId, key: u64) {
        if let Some(exec) = self.execs.get(key) {
            exec.viewers.retain(|viewer| *viewer != stream);
            exec.stdin.disown(stream);
        }
        self.pause_or_resume(key);
    }

    /// Stops reading a command's pipes while an attached stream would lose bytes, and resumes afterwards.
    fn pause_or_resume(&mut self, key: u64) {
        let memory = self.memory_for(key);
        let Some(exec) = self.execs.get(key) else {
            return;
        };
        let slowest = exec.viewers.iter().filter_map(|viewer| Some(self.streams.get(*viewer)?.position));
        let pause =
            slowest.min().is_some_and(|position| exec.output.should_wait_for(position, memory, READ_BYTES as u64));
        if pause != exec.paused {
            exec.paused = pause;
            if pause {
                exec.pipes.unwatch(&self.poller);
            } else if !exec.unread {
                let _ = exec.watch(&self.poller);
            }
        }
    }

    /// Adds bytes to a command's stdin.
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

    /// Reads and drops the output of background processes whose command was forgotten, so that they do not get SIGPIPE.
    pub fn discard(&mut self, key: u64) {
        let Some(fd) = self.discarded.get(&key) else {
            return;
        };
        if fds::read(fd, &mut self.buffer) == ReadResult::End {
            self.discarded.remove(&key);
        }
    }
}
