//! Starting drivers and forking spares.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::process::Pid;
use sandling_protocol::{Failure, FailureKind, Language};

use crate::agent::state::{Agent, Owner};
use crate::environment::{Variables, compose};
use crate::exec::{Plan, Setting};
use crate::failure::{failure, io_failure, launch_failure};
use crate::interpreters::{Control, Interpreter, Mode, Role, Streams};
use crate::sys::launch::{LaunchError, launch};
use crate::sys::poller::{Interest, Source};
use crate::sys::{children, fds, socket};
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
        let key = self.start_driver(language, Mode::Zygote, Role::Zygote)?;
        let Some(pool) = self.interpreters.pools.get_mut(&language) else {
            return Ok(());
        };
        pool.zygote = Some(key);
        pool.zygote_ready = false;
        let imports = serde_json::json!({ "imports": pool.imports }).to_string();
        self.send_line(key, imports.as_bytes());
        Ok(())
    }

    /// Starts a driver in the background. It reports over its control socket.
    pub fn start_driver(&mut self, language: Language, mode: Mode, role: Role) -> Result<u64, Failure> {
        let unusable = |error: &io::Error| io_failure("an interpreter", error);
        let (streams, theirs) = stream_pairs().map_err(|error| unusable(&error))?;
        let (ours, their_control) = socket::pair().map_err(|error| unusable(&error))?;
        let setting = Setting::ours(compose(&self.variables, &User::ourselves(), &Variables::new()));
        let plan = Plan::argv(&self.drivers.command(language, mode), &setting.variables)?;
        let cgroup = self.cgroups.take();
        // The output of a zygote, which it prints while it imports, is dropped.
        let (stdin, stdout, stderr) = match role {
            Role::Zygote => (&self.null, &self.null, &self.null),
            _ => (&theirs.stdin, &theirs.stdout, &theirs.stderr),
        };
        let mut ready = plan.launch(&setting, [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()])?;
        ready.extra = Some(their_control.as_fd());
        ready.niceness = LOW_PRIORITY;
        ready.cgroup = cgroup.as_ref().map(|cgroup| cgroup.procs());
        let pid = launch(&ready).map_err(|error| interpreter_failure(&plan, &error))?;
        let key = self.interpreters.next_key();
        let control = Control::new(ours);
        self.poller.add(control.fd(), Source::Control(key), Interest::Read).map_err(|error| unusable(&error))?;
        self.children.insert(pid, Owner::Interpreter(key));
        let streams = Some(streams);
        let rehearsed = None;
        let interpreter = Interpreter { key, language, role, pid: Some(pid), control, streams, cgroup, rehearsed };
        self.interpreters.insert(interpreter);
        Ok(key)
    }

    /// Asks a zygote for a spare. It can be claimed at once; lines to it are held until its process is known.
    pub fn fork_spare(&mut self, language: Language, purpose: Purpose) -> io::Result<u64> {
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        let rehearse = (purpose == Purpose::Ahead).then(|| self.usual_variables());
        let line = format!("{}\n", serde_json::json!({ "fork": true, "rehearse": rehearse }));
        let (streams, theirs) = stream_pairs()?;
        let (ours, their_control) = socket::pair()?;
        let key = self.interpreters.next_key();
        self.poller.add(&ours, Source::Control(key), Interest::Read)?;
        let pool = self.interpreters.pools.get_mut(&language).ok_or_else(gone)?;
        let zygote = pool.zygote.ok_or_else(gone)?;
        pool.forking.push_back(key);
        if pool.forking.len() == 1 {
            self.unclaimed_endings.clear();
        }
        let fds = [theirs.stdin.as_fd(), theirs.stdout.as_fd(), theirs.stderr.as_fd(), their_control.as_fd()];
        let zygote = self.interpreters.get(zygote).ok_or_else(gone)?;
        if let Err(error) = zygote.control.send_with_fds(line.as_bytes(), fds) {
            if let Some(pool) = self.interpreters.pools.get_mut(&language) {
                pool.forking.pop_back();
            }
            return Err(error);
        }
        let cgroup = self.cgroups.take();
        let control = Control::held(ours);
        let streams = Some(streams);
        let role = Role::Spare;
        let interpreter = Interpreter { key, language, role, pid: None, control, streams, cgroup, rehearsed: rehearse };
        self.interpreters.insert(interpreter);
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

/// The agent's ends, which do not block, and the interpreter's ends, which do.
fn stream_pairs() -> io::Result<(Streams, Streams)> {
    let (their_stdin, stdin): (OwnedFd, OwnedFd) = fds::pipe()?;
    let (stdout, their_stdout) = fds::pipe()?;
    let (stderr, their_stderr) = fds::pipe()?;
    for ours in [&stdin, &stdout, &stderr] {
        fds::set_nonblocking(ours)?;
    }
    Ok((Streams { stdin, stdout, stderr }, Streams { stdin: their_stdin, stdout: their_stdout, stderr: their_stderr }))
}

fn interpreter_failure(plan: &Plan, error: &LaunchError) -> Failure {
    match error {
        LaunchError::Execute(source) if source.kind() == io::ErrorKind::NotFound => {
            failure(FailureKind::Unsupported, format!("this template has no {}", plan.name()))
        }
        _ => launch_failure(plan.name(), "/", error),
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
