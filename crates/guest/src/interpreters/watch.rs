//! What comes from interpreters: lines, closed sockets, deaths.

use sandling_protocol::FailureKind;

use super::control::Lines;
use super::message::Message;
use super::table::{Interpreter, Role};
use crate::agent::Agent;
use crate::failure::failure;
use crate::sys::children::{self, Ending};
use crate::sys::poller::{Interest, Source};

impl Agent {
    /// Sends an interpreter a line.
    pub fn tell(&mut self, key: u64, line: &[u8]) {
        let Some(interpreter) = self.interpreters.get(key) else {
            return;
        };
        interpreter.control.send(line);
        if interpreter.control.has_unsent() {
            self.control_interest(key);
        }
    }

    /// Waits for room only while something is left to send.
    pub fn control_interest(&mut self, key: u64) {
        if let Some(interpreter) = self.interpreters.get(key) {
            let interest = Interest::of(true, interpreter.control.has_unsent());
            let _ = self.poller.change(interpreter.control.fd(), Source::Control(key), interest);
        }
    }

    pub fn control_ready(&mut self, key: u64) {
        let Some(interpreter) = self.interpreters.get(key) else {
            return;
        };
        if interpreter.control.has_unsent() {
            interpreter.control.flush();
            self.control_interest(key);
        }
        let Some(interpreter) = self.interpreters.get(key) else {
            return;
        };
        match interpreter.control.read(&mut self.buffer) {
            Lines::Some(lines) => self.interpreter_said_all(key, &lines),
            Lines::Closed(lines) => {
                self.interpreter_said_all(key, &lines);
                self.control_closed(key);
            }
        }
    }

    fn interpreter_said_all(&mut self, key: u64, lines: &[Vec<u8>]) {
        for line in lines {
            match serde_json::from_slice::<Message>(line) {
                Ok(message) => self.interpreter_said(key, &message),
                // Only code that went out of its way can write here; its own cell suffers.
                Err(error) => crate::console::say(&format!("an interpreter talks nonsense: {error}")),
            }
        }
    }

    fn interpreter_said(&mut self, key: u64, message: &Message<'_>) {
        let Some(interpreter) = self.interpreters.get(key) else {
            return;
        };
        let (role, language) = (interpreter.role, interpreter.language);
        match role {
            Role::Zygote | Role::Spare => self.lane_said(key, language, role, message),
            Role::Script { exec } => self.script_said(key, exec, message),
            Role::Context { context } => self.context_said(context, message),
        }
    }

    fn script_said(&mut self, key: u64, exec: u64, message: &Message<'_>) {
        if let Some(reason) = &message.failed {
            self.forget_interpreter(key);
            self.exec_failed(exec, &failure(FailureKind::Other, reason.clone()));
        } else if let Some(status) = message.ended {
            let ending = if status < 0 { Ending::Signal(-status) } else { Ending::Code(status) };
            self.exec_ended(exec, ending);
        }
    }

    /// A script closes its socket when it begins. Nobody else does, while he can be trusted to answer.
    fn control_closed(&mut self, key: u64) {
        let Some(interpreter) = self.interpreters.get(key) else {
            return;
        };
        self.poller.remove(interpreter.control.fd());
        match (interpreter.role, interpreter.pid) {
            (_, None) => self.interpreter_lost(key),
            (Role::Script { .. }, Some(_)) => self.forget_interpreter(key),
            (_, Some(pid)) => drop(children::signal_group(pid, libc::SIGKILL)),
        }
    }

    /// An interpreter's process has ended.
    pub fn interpreter_ended(&mut self, key: u64, ending: Ending) {
        // Its last words may still be in the socket.
        while let Some(interpreter) = self.interpreters.get(key) {
            match interpreter.control.read(&mut self.buffer) {
                Lines::Some(lines) if !lines.is_empty() => self.interpreter_said_all(key, &lines),
                Lines::Closed(lines) => {
                    self.interpreter_said_all(key, &lines);
                    break;
                }
                Lines::Some(_) => break,
            }
        }
        let Some(Interpreter { role, language, cgroup, .. }) = self.interpreters.remove(key) else {
            return;
        };
        let out_of_memory = cgroup.as_ref().is_some_and(|cgroup| cgroup.was_out_of_memory());
        if let Some(cgroup) = cgroup {
            self.cgroups.give_back(cgroup);
        }
        match role {
            Role::Zygote | Role::Spare => self.lane_lost(key, language),
            Role::Context { context } => {
                let killed = ending == Ending::Signal(libc::SIGKILL);
                self.context_lost_interpreter(context, killed && out_of_memory);
            }
            Role::Script { .. } => {}
        }
    }

    /// An interpreter will never have a process.
    pub fn interpreter_lost(&mut self, key: u64) {
        let Some(Interpreter { role, language, cgroup, .. }) = self.interpreters.remove(key) else {
            return;
        };
        if let Some(cgroup) = cgroup {
            self.cgroups.give_back(cgroup);
        }
        match role {
            Role::Zygote | Role::Spare => self.lane_lost(key, language),
            Role::Script { exec } => {
                self.exec_failed(exec, &failure(FailureKind::Other, "the interpreter could not be started"));
            }
            Role::Context { context } => self.context_lost_interpreter(context, false),
        }
    }

    /// Ends an interpreter that nobody needs.
    pub fn drop_interpreter(&mut self, key: u64) {
        let Some(Interpreter { pid, cgroup, .. }) = self.interpreters.remove(key) else {
            return;
        };
        if let Some(pid) = pid {
            self.children.remove(&pid);
            let _ = children::signal_group(pid, libc::SIGKILL);
        }
        if let Some(cgroup) = cgroup {
            self.cgroups.give_back(cgroup);
        }
    }

    /// Lets go of an interpreter's control socket; its process is somebody's.
    pub fn forget_interpreter(&mut self, key: u64) {
        if let Some(Interpreter { cgroup: Some(cgroup), .. }) = self.interpreters.remove(key) {
            self.cgroups.give_back(cgroup);
        }
    }
}
