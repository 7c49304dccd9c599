//! Events of interpreters: messages, closed sockets, ended processes.

use sandling_protocol::FailureKind;

use crate::agent::state::Agent;
use crate::cgroup::Cgroup;
use crate::failure::failure;
use crate::interpreters::{Interpreter, Lines, Message, Role};
use crate::sys::children::{self, Ending};
use crate::sys::poller::{Interest, Source};

impl Agent {
    /// Sends an interpreter a line.
    pub fn send_line(&mut self, key: u64, line: &[u8]) {
        let Some(interpreter) = self.interpreters.get(key) else {
            return;
        };
        interpreter.control.send(line);
        if interpreter.control.has_unsent() {
            self.control_interest(key);
        }
    }

    /// Waits for the socket to be writable only while lines are left to send.
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
            Lines::Some(lines) => self.interpreter_messages(key, &lines),
            Lines::Closed(lines) => {
                self.interpreter_messages(key, &lines);
                self.control_closed(key);
            }
        }
    }

    fn interpreter_messages(&mut self, key: u64, lines: &[Vec<u8>]) {
        for line in lines {
            match serde_json::from_slice::<Message>(line) {
                Ok(message) => self.interpreter_message(key, &message),
                // Only user code that misuses the socket causes this, and it harms only its own cell.
                Err(error) => crate::console::log(&format!("an interpreter sent an invalid message: {error}")),
            }
        }
    }

    fn interpreter_message(&mut self, key: u64, message: &Message<'_>) {
        let Some(interpreter) = self.interpreters.get(key) else {
            return;
        };
        let (role, language) = (interpreter.role, interpreter.language);
        match role {
            Role::Zygote | Role::Spare => self.pool_message(key, language, role, message),
            Role::Script { exec } => self.script_message(key, exec, message),
            Role::Context { context } => self.context_message(context, message),
        }
    }

    fn script_message(&mut self, key: u64, exec: u64, message: &Message<'_>) {
        if let Some(reason) = &message.failed {
            self.forget_interpreter(key);
            self.exec_failed(exec, &failure(FailureKind::Other, reason.clone()));
        } else if let Some(status) = message.ended {
            let ending = if status < 0 { Ending::Signal(-status) } else { Ending::Code(status) };
            self.exec_ended(exec, ending);
        }
    }

    /// A script closes its socket when it begins. Any other interpreter that does so no longer works and is killed.
    fn control_closed(&mut self, key: u64) {
        let Some(interpreter) = self.interpreters.get(key) else {
            return;
        };
        self.poller.remove(interpreter.control.fd());
        match (interpreter.role, interpreter.pid) {
            (_, None) => self.interpreter_lost(key, false),
            (Role::Script { .. }, Some(_)) => self.forget_interpreter(key),
            (_, Some(pid)) => drop(children::signal_group(pid, libc::SIGKILL)),
        }
    }

    /// An interpreter's process has ended.
    pub fn interpreter_ended(&mut self, key: u64, ending: Ending) {
        // Its last messages may still be in the socket.
        while let Some(interpreter) = self.interpreters.get(key) {
            match interpreter.control.read(&mut self.buffer) {
                Lines::Some(lines) if !lines.is_empty() => self.interpreter_messages(key, &lines),
                Lines::Closed(lines) => {
                    self.interpreter_messages(key, &lines);
                    break;
                }
                Lines::Some(_) => break,
            }
        }
        self.interpreter_lost(key, ending == Ending::Signal(libc::SIGKILL));
    }

    /// An interpreter has ended, or could not be forked and never gets a process.
    pub fn interpreter_lost(&mut self, key: u64, killed: bool) {
        let Some(Interpreter { role, language, pid, cgroup, .. }) = self.interpreters.remove(key) else { return };
        let out_of_memory = killed && cgroup.as_ref().is_some_and(Cgroup::was_out_of_memory);
        self.cgroups.give_back(cgroup);
        match role {
            Role::Zygote | Role::Spare => self.pool_lost(key, language),
            Role::Context { context } => self.context_lost_interpreter(context, out_of_memory),
            Role::Script { exec } if pid.is_none() => {
                self.exec_failed(exec, &failure(FailureKind::Other, "the interpreter could not be started"));
            }
            // The end of its process is the end of its command.
            Role::Script { .. } => {}
        }
    }

    /// Kills an interpreter that is no longer needed.
    pub fn drop_interpreter(&mut self, key: u64) {
        let Some(Interpreter { pid, cgroup, .. }) = self.interpreters.remove(key) else {
            return;
        };
        if let Some(pid) = pid {
            self.children.remove(&pid);
            let _ = children::signal_group(pid, libc::SIGKILL);
        }
        self.cgroups.give_back(cgroup);
    }

    /// Closes an interpreter's control socket. Its process belongs to a command.
    pub fn forget_interpreter(&mut self, key: u64) {
        self.cgroups.give_back(self.interpreters.remove(key).and_then(|interpreter| interpreter.cgroup));
    }
}
