//! Starting drivers and forking spares.

use std::io;
use std::os::fd::AsFd;

use rustix::process::Pid;
use sandling_protocol::{Failure, FailureKind, Language, Stdin as StdinSpec, TerminalSize};

use crate::agent::state::{Agent, Owner};
use crate::environment::{Variables, compose};
use crate::exec::{Plan, Setting, Started, open_pipes};
use crate::failure::{failure, io_failure};
use crate::interpreters::{Control, Interpreter, Permit, Role};
use crate::sys::launch::Session;
use crate::sys::poller::{Interest, Source};
use crate::sys::{children, socket};
use crate::users::User;

/// The niceness of processes that make spares.
const LOW_PRIORITY: i32 = 10;

/// Why a spare is made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// For a later claim: it rehearses.
    Ahead,
    /// For a claim that waits: it does not.
    Claimed,
}

impl Agent {
    pub fn start_zygote(&mut self, language: Language) -> Result<(), Failure> {
        let key = self.start_driver(language, Role::Zygote, &self.driver_variables())?;
        let Some(pool) = self.interpreters.pools.get_mut(&language) else {
            return Ok(());
        };
        pool.zygote = Some(key);
        pool.zygote_ready = false;
        let imports = serde_json::json!({ "imports": pool.imports }).to_string();
        self.send_line(key, imports.as_bytes());
        Ok(())
    }

    /// Starts a driver that keeps its standard streams until a script or a context takes them.
    pub fn start_driver(&mut self, language: Language, role: Role, variables: &Variables) -> Result<u64, Failure> {
        let (key, started) = self.start_cold(language, role, variables, None, StdinSpec::Open)?;
        if let Some(interpreter) = self.interpreters.get(key) {
            (interpreter.stdio, interpreter.cgroup) = (Some(started.stdio), started.cgroup);
        }
        Ok(key)
    }

    /// The environment of a driver that is started before its user is known.
    pub fn driver_variables(&self) -> Variables {
        compose(&self.variables, &User::ourselves(), &Variables::new())
    }

    /// Starts a new interpreter as root; it changes its user when it is activated.
    pub fn start_cold(
        &mut self,
        language: Language,
        role: Role,
        variables: &Variables,
        terminal: Option<TerminalSize>,
        stdin: StdinSpec,
    ) -> Result<(u64, Started), Failure> {
        let unusable = |error: io::Error| io_failure("an interpreter", &error);
        let (ours, theirs) = socket::pair().map_err(unusable)?;
        let setting = Setting::ours(variables.clone());
        let mut plan = Plan::argv(&self.drivers.command(language, role), variables)?;
        plan.extra = vec![theirs];
        let permit = (language == Language::Node).then(Permit::new).transpose().map_err(unusable)?;
        if let Some(permit) = &permit {
            plan.extra.push(permit.descriptor().map_err(unusable)?);
        }
        // Node cannot call `setsid`, and an interpreter's group is signalled by its process id.
        plan.session = Session::Leader;
        // What a zygote prints while it imports is dropped.
        plan.is_silent = role == Role::Zygote;
        plan.niceness = if matches!(role, Role::Zygote | Role::Spare) { LOW_PRIORITY } else { 0 };
        let started = self.start_program(&plan, &setting, terminal, stdin);
        let mut started = started.map_err(|failure| unsupported_if_missing(failure, &plan))?;
        let interpreter = Interpreter::new(language, role, Control::new(ours));
        let interpreter = Interpreter { pid: started.pid, permit, ..interpreter };
        let key = self.add_interpreter(interpreter).map_err(unusable)?;
        started.interpreter = Some(key);
        Ok((key, started))
    }

    /// Waits for the interpreter's messages and its end, and returns its key.
    fn add_interpreter(&mut self, mut interpreter: Interpreter) -> io::Result<u64> {
        let key = self.interpreters.next_key();
        self.poller.add(interpreter.control.fd(), Source::Control(key), Interest::Read)?;
        if let Some(pid) = interpreter.pid {
            self.children.insert(pid, Owner::Interpreter(key));
        }
        interpreter.key = key;
        self.interpreters.insert(interpreter);
        Ok(key)
    }

    /// Asks a zygote for a spare. It can be claimed at once; lines to it are held until its process is known.
    pub fn fork_spare(&mut self, language: Language, purpose: Purpose) -> io::Result<u64> {
        let rehearsed = (purpose == Purpose::Ahead).then(|| self.usual_variables());
        let line = format!("{}\n", serde_json::json!({ "fork": true, "rehearse": rehearsed }));
        let zygote = self.interpreters.pools.get(&language).and_then(|pool| pool.zygote);
        let zygote = zygote.ok_or(io::ErrorKind::NotFound)?;
        let (stdio, theirs) = open_pipes(StdinSpec::Open)?;
        let (ours, their_control) = socket::pair()?;
        let spare = Interpreter::new(language, Role::Spare, Control::held(ours));
        let cgroup = self.cgroups.take();
        let key = self.add_interpreter(Interpreter { stdio: Some(stdio), cgroup, rehearsed, ..spare })?;
        let stdin = theirs.stdin.as_ref().unwrap_or(&self.null);
        let fds = [stdin.as_fd(), theirs.stdout.as_fd(), theirs.stderr.as_fd(), their_control.as_fd()];
        let sent = match self.interpreters.get(zygote) {
            Some(zygote) => zygote.control.send_with_fds(line.as_bytes(), fds),
            None => Err(io::ErrorKind::NotFound.into()),
        };
        sent.inspect_err(|_| self.forget_interpreter(key))?;
        if let Some(pool) = self.interpreters.pools.get_mut(&language) {
            if pool.forking.is_empty() {
                self.unclaimed_endings.clear();
            }
            pool.forking.push_back(key);
        }
        Ok(key)
    }

    /// The environment of most commands.
    fn usual_variables(&self) -> Variables {
        User::find(None).map_or_else(|_| Variables::new(), |user| compose(&self.variables, &user, &Variables::new()))
    }

    /// A forked interpreter's process is known: it is moved to its control group and gets the held lines.
    pub fn has_process(&mut self, key: u64, pid: u32) {
        let Some(interpreter) = self.interpreters.get(key) else {
            // It was dropped meanwhile.
            let _ = children::signal_process(pid, libc::SIGKILL);
            return;
        };
        interpreter.pid = Some(pid);
        if let Some(cgroup) = &interpreter.cgroup {
            let _ = cgroup.adopt(pid);
        }
        let role = interpreter.role;
        raise_priority(pid);
        self.children.insert(pid, Owner::Interpreter(key));
        if let Role::Script { exec } = role {
            let cgroup = self.interpreters.get(key).and_then(|interpreter| interpreter.cgroup.take());
            if let Some(exec) = self.execs.get(exec) {
                exec.cgroup = cgroup;
            }
            self.exec_has_process(exec, pid);
        }
        if let Some(interpreter) = self.interpreters.get(key) {
            interpreter.control.release();
        }
        self.control_interest(key);
        if let Some(at) = self.unclaimed_endings.iter().position(|(ended, _)| *ended == pid) {
            let (pid, ending) = self.unclaimed_endings.swap_remove(at);
            self.child_ended(pid, ending);
        }
    }
}

/// Reports a missing interpreter as a property of the image, not as a missing command.
fn unsupported_if_missing(found: Failure, plan: &Plan) -> Failure {
    match found.kind {
        FailureKind::NotFound => failure(FailureKind::Unsupported, format!("this image has no {}", plan.name())),
        _ => found,
    }
}

/// Resets the low priority that a spare was made with, for each of its threads.
pub fn raise_priority(pid: u32) {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return;
    };
    for thread in threads.flatten() {
        let id = thread.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        // Only root may raise a priority, and only root lowers it.
        let _ = rustix::process::setpriority_process(id, 0);
    }
}
