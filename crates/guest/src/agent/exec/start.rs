//! Starting a command.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use sandling_protocol::{
    Event, ExecSpec, Failure, FailureKind, Language, Program, Stdin as StdinSpec, StreamId, TerminalSize,
};

use crate::agent::state::{Agent, Owner};
use crate::cgroup::Cgroup;
use crate::clock;
use crate::exec::output::Output;
use crate::exec::{AgentStdio, Exec, Plan, Setting, Started, check_id, describe, open_pipes, open_terminal};
use crate::failure::{failure, io_failure, launch_failure};
use crate::interpreters::Script;
use crate::streams::Kind;
use crate::sys::launch::{LaunchError, Launched, Session, launch};
use crate::timers::Timer;

/// How long a script runs in a warm interpreter before the agent reads its output. Most scripts end within that time, and
/// then everything goes to the host in one message: waking the agent for each part, and the host for each message, takes
/// longer than such a script runs. If the script crashes the kernel within this time, its output is lost.
const READ_DELAY: Duration = Duration::from_millis(15);

impl Agent {
    /// Starts a command and attaches to it; only attaches if a command has this id already.
    pub fn run(&mut self, stream: StreamId, spec: ExecSpec, code: &[u8]) -> Result<(), Failure> {
        check_id(&spec.id)?;
        if let Some(key) = self.execs.key_of(&spec.id) {
            self.view(stream, key, 0, true);
            return Ok(());
        }
        let key = self.execs.next_key();
        let setting = Setting::new(&self.variables, spec.user.as_deref(), &spec.env, spec.cwd.as_deref())?;
        let started = self.start(key, &spec, &setting, code)?;
        self.record(key, &spec, code, started)?;
        self.view(stream, key, 0, false);
        Ok(())
    }

    fn start(&mut self, key: u64, spec: &ExecSpec, setting: &Setting, code: &[u8]) -> Result<Started, Failure> {
        let plan = match &spec.program {
            Program::Shell(line) => Plan::shell(line)?,
            Program::Argv(argv) => Plan::argv(argv, &setting.variables)?,
            Program::Code { language: Language::Bash, args } => Plan::bash_code(code, args)?,
            Program::Code { language, args } => {
                let script = Script::new(*language, code, args)?;
                return self.start_script(key, &script, setting, spec.terminal, spec.stdin);
            }
        };
        self.start_program(&plan, setting, spec.terminal, spec.stdin)
    }

    /// Starts a program with pipes or with a terminal.
    pub fn start_program(
        &mut self,
        plan: &Plan,
        setting: &Setting,
        terminal: Option<TerminalSize>,
        stdin: StdinSpec,
    ) -> Result<Started, Failure> {
        let (ours, theirs) = match terminal {
            Some(size) => open_terminal(size, setting),
            None => open_pipes(stdin),
        }
        .map_err(|error| io_failure("a pipe for the command", &error))?;
        let cgroup = self.cgroups.take();
        let null = self.null.as_fd();
        let stdio = match plan.is_silent {
            true => [null; 3],
            false => {
                [theirs.stdin.as_ref().map_or(null, |fd| fd.as_fd()), theirs.stdout.as_fd(), theirs.stderr.as_fd()]
            }
        };
        let mut ready = plan.launch(setting, stdio)?;
        if terminal.is_some() {
            ready.session = Session::LeaderWithTerminal;
        }
        ready.cgroup = cgroup.as_ref().map(Cgroup::procs);
        match launch(&ready) {
            Ok(Launched { pid, group }) => {
                Ok(Started { pid: Some(pid), group: Some(group), stdio: ours, cgroup, interpreter: None })
            }
            Err(error) => {
                self.cgroups.give_back(cgroup);
                let failure = launch_failure(plan.name(), &setting.directory, &error);
                let is_missing = matches!(error, LaunchError::Execute(_)) && failure.kind == FailureKind::NotFound;
                Err(if plan.is_shell && is_missing { no_shell() } else { failure })
            }
        }
    }

    fn record(&mut self, key: u64, spec: &ExecSpec, code: &[u8], started: Started) -> Result<(), Failure> {
        let Started { pid, group, stdio: AgentStdio { pipes, stdin }, cgroup, interpreter } = started;
        let unread = interpreter.is_some() && pipes.terminal().is_none();
        let exec = Exec {
            key,
            id: spec.id.clone(),
            command: describe(spec, code),
            pid,
            group,
            started_unix_ms: clock::unix_ms(),
            started: Instant::now(),
            output: Output::new(spec.output_limit, spec.on_limit),
            pipes,
            stdin,
            cgroup,
            ended_by_us: None,
            resized: None,
            ending: None,
            exit: None,
            output_end: 0,
            viewers: Vec::new(),
            unread,
            paused: false,
            interpreter,
        };
        let watched = if unread { Ok(()) } else { exec.watch(&self.poller) };
        self.execs.insert(exec);
        if unread {
            self.timers.set(READ_DELAY, Timer::ListenToExec(key));
        }
        if let Some(pid) = pid {
            self.children.insert(pid, Owner::Exec(key));
        }
        if let Some(timeout) = spec.timeout_ms {
            self.timers.set(Duration::from_millis(timeout), Timer::ExecDeadline(key));
        }
        watched.map_err(|error| io_failure("waiting for the command", &error))
    }

    /// Attaches a stream to a command.
    pub fn view(&mut self, stream: StreamId, key: u64, from: u64, existing: bool) {
        let Some(exec) = self.execs.get(key) else {
            return;
        };
        exec.viewers.push(stream);
        if let Some(open) = self.streams.get(stream) {
            open.position = from.min(exec.output.log.end());
            open.kind = Kind::Viewer { exec: key, existing };
        }
        match exec.pid {
            Some(pid) if exec.unread => self.streams.deferred_event(stream, Event::Started { pid, existing }),
            Some(pid) => self.streams.event(stream, Event::Started { pid, existing }),
            None => {}
        }
        self.pump_viewer(stream);
    }

    /// A script has run longer than most: its output is read from now on.
    pub fn listen_to_exec(&mut self, key: u64) {
        self.streams.outbox.mark_urgent();
        let Some(exec) = self.execs.get(key) else {
            return;
        };
        exec.unread = false;
        if !exec.paused {
            // Fails only without memory; the command's end is still noticed.
            let _ = exec.watch(&self.poller);
        }
    }

    /// A command's interpreter has a process.
    pub fn exec_has_process(&mut self, key: u64, pid: u32) {
        let Some(exec) = self.execs.get(key) else {
            return;
        };
        (exec.pid, exec.group) = (Some(pid), Some(pid));
        self.children.insert(pid, Owner::Exec(key));
        for stream in exec.viewers.clone() {
            let Some(&mut Kind::Viewer { existing, .. }) = self.streams.kind(stream) else { continue };
            self.streams.event(stream, Event::Started { pid, existing });
        }
    }
}

/// Names the missing shell as a property of the image. A program without a shell can still be run.
fn no_shell() -> Failure {
    failure(
        FailureKind::Unsupported,
        "this image has no shell, neither bash nor /bin/sh; give a program and its arguments as a list instead",
    )
}
