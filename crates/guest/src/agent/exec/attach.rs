//! Requests about existing commands: attach, signal, resize, list, forget.

use std::time::Duration;

use sandling_protocol::{Failure, FailureKind, Response, StreamId, TerminalSize};

use crate::agent::state::Agent;
use crate::exec::Exec;
use crate::failure::{failure, io_failure, not_found};
use crate::timers::Timer;

const HIGHEST_SIGNAL: i32 = 64;
/// How long after a resize the size is checked, and between two checks.
const SIZE_CHECK: Duration = Duration::from_millis(100);

impl Agent {
    pub fn attach(&mut self, stream: StreamId, id: &str, from: u64) -> Result<(), Failure> {
        let key = self.execs.key_of(id).ok_or_else(|| not_found("command", id))?;
        self.view(stream, key, from, true);
        Ok(())
    }

    pub fn signal(&mut self, id: &str, signal: i32) -> Result<Response, Failure> {
        if !(1..=HIGHEST_SIGNAL).contains(&signal) {
            return Err(failure(FailureKind::Invalid, format!("there is no signal {signal}")));
        }
        let exec = self.exec(id)?;
        let running = exec.exit.is_none() && exec.ending.is_none();
        let Some(signalled) = running.then(|| exec.signal(signal)).flatten() else {
            return Err(failure(FailureKind::Invalid, format!("command {id:?} is not running")));
        };
        signalled.map_err(|error| io_failure("the signal", &error))?;
        Ok(Response::Done)
    }

    pub fn resize(&mut self, id: &str, size: TerminalSize) -> Result<Response, Failure> {
        let exec = self.exec(id)?;
        let key = exec.key;
        match exec.resize(size) {
            Some(Ok(())) => {
                self.timers.set(SIZE_CHECK, Timer::KeepSize(key));
                Ok(Response::Done)
            }
            Some(Err(error)) => Err(io_failure("the terminal", &error)),
            None => Err(failure(FailureKind::Invalid, format!("command {id:?} has no terminal"))),
        }
    }

    pub fn keep_size(&mut self, key: u64) {
        if self.execs.get(key).is_some_and(Exec::keep_size) {
            self.timers.set(SIZE_CHECK, Timer::KeepSize(key));
        }
    }

    pub fn list_execs(&mut self) -> Response {
        Response::Execs { execs: self.execs.iter().map(Exec::info).collect() }
    }

    pub fn forget(&mut self, id: &str) -> Result<Response, Failure> {
        let exec = self.exec(id)?;
        if exec.exit.is_none() {
            return Err(failure(FailureKind::Busy, format!("command {id:?} is still running")));
        }
        let (key, viewers) = (exec.key, exec.viewers.clone());
        for stream in viewers {
            self.streams.end(stream, Err(failure(FailureKind::NotFound, format!("command {id:?} was forgotten"))));
        }
        self.forget_exec(key);
        Ok(Response::Done)
    }

    fn exec(&mut self, id: &str) -> Result<&mut Exec, Failure> {
        let key = self.execs.key_of(id);
        key.and_then(|key| self.execs.get(key)).ok_or_else(|| not_found("command", id))
    }
}
