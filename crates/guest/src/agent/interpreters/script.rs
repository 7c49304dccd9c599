//! Running a script, in a spare if there is one, else in a new interpreter.

use std::os::fd::OwnedFd;

use sandling_protocol::{Failure, FailureKind, Language, Stdin as StdinSpec, TerminalSize};

use crate::agent::state::{Agent, Owner};
use crate::exec::{AgentEnds, Pipes, Plan, Setting, Started, Stdin};
use crate::failure::{failure, io_failure};
use crate::interpreters::{Control, Interpreter, Mode, Prepared, Role, Script, Streams, needs_fresh_start};
use crate::sys::poller::{Interest, Source};
use crate::sys::socket;

impl Agent {
    pub fn start_script(
        &mut self,
        exec: u64,
        script: &Script,
        setting: &Setting,
        terminal: Option<TerminalSize>,
        stdin: StdinSpec,
    ) -> Result<Started, Failure> {
        setting.check_directory()?;
        // A spare already has pipes and cannot get a terminal.
        let warm = terminal.is_none() && !needs_fresh_start(&setting.variables);
        if warm && let Some(started) = self.start_warm_script(exec, script, setting, stdin) {
            return Ok(started);
        }
        self.start_cold_script(exec, script, setting, terminal, stdin)
    }

    fn start_warm_script(
        &mut self,
        exec: u64,
        script: &Script,
        setting: &Setting,
        stdin: StdinSpec,
    ) -> Option<Started> {
        let key = self.claim(script.language)?;
        let interpreter = self.interpreters.get(key)?;
        interpreter.role = Role::Script { exec };
        let Streams { stdin: input, stdout, stderr } = interpreter.streams.take()?;
        let pid = interpreter.pid;
        // A process that is still being forked enters the group later.
        let cgroup = if pid.is_some() { interpreter.cgroup.take() } else { None };
        let stdin = match stdin {
            StdinSpec::Open => Stdin::pipe(input),
            StdinSpec::Closed => Stdin::closed(),
        };
        if let Some(pid) = pid {
            self.children.insert(pid, Owner::Exec(exec));
        }
        let prepared = self.prepared(key, setting);
        self.send_line(key, &script.activation(setting, &prepared));
        let pipes = Pipes::Apart { stdout: Some(stdout), stderr: Some(stderr) };
        Some(Started { pid, ends: AgentEnds { pipes, stdin }, cgroup, interpreter: Some(key) })
    }

    fn start_cold_script(
        &mut self,
        exec: u64,
        script: &Script,
        setting: &Setting,
        terminal: Option<TerminalSize>,
        stdin: StdinSpec,
    ) -> Result<Started, Failure> {
        let (ours, theirs) = socket::pair().map_err(|error| io_failure("an interpreter", &error))?;
        let ours_setting = Setting::ours(setting.variables.clone());
        let plan = self.cold_plan(script.language, Mode::Script, &ours_setting, theirs)?;
        let mut started = self
            .start_program(&plan, &ours_setting, terminal, stdin)
            .map_err(|failure| unsupported_if_missing(failure, &plan))?;
        let key = self.add_cold(script.language, Role::Script { exec }, started.pid, ours)?;
        self.send_line(key, &script.activation(setting, &Prepared::default()));
        started.interpreter = Some(key);
        Ok(started)
    }

    /// The command line of an interpreter that is started for one use.
    pub fn cold_plan(
        &self,
        language: Language,
        mode: Mode,
        setting: &Setting,
        control: OwnedFd,
    ) -> Result<Plan, Failure> {
        let mut plan = Plan::argv(&self.drivers.command(language, mode), &setting.variables)?;
        plan.extra = Some(control);
        Ok(plan)
    }

    /// Registers an interpreter that was started for one use.
    pub fn add_cold(
        &mut self,
        language: Language,
        role: Role,
        pid: Option<u32>,
        control: OwnedFd,
    ) -> Result<u64, Failure> {
        let key = self.interpreters.next_key();
        self.poller
            .add(&control, Source::Control(key), Interest::Read)
            .map_err(|error| io_failure("an interpreter", &error))?;
        let control = Control::new(control);
        self.interpreters.insert(Interpreter {
            key,
            language,
            role,
            pid,
            control,
            streams: None,
            cgroup: None,
            rehearsed: None,
        });
        Ok(key)
    }
}

/// Reports a missing interpreter as a property of the template, not as a missing command.
pub fn unsupported_if_missing(found: Failure, plan: &Plan) -> Failure {
    match found.kind {
        FailureKind::NotFound => failure(FailureKind::Unsupported, format!("this template has no {}", plan.name())),
        _ => found,
    }
}
