//! Running a script, in a spare if there is one, else in a new interpreter.

use sandling_protocol::{Failure, Stdin as StdinSpec, TerminalSize};

use crate::agent::state::{Agent, Owner};
use crate::exec::{Setting, Started, Stdin};
use crate::interpreters::{Prepared, Role, Script, needs_fresh_start};

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
        let role = Role::Script { exec };
        let (key, started) = self.start_cold(script.language, role, &setting.variables, terminal, stdin)?;
        self.send_line(key, &script.activation(setting, &Prepared::default()));
        Ok(started)
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
        let mut stdio = interpreter.stdio.take()?;
        let pid = interpreter.pid;
        // A process that is still being forked enters the group later.
        let cgroup = if pid.is_some() { interpreter.cgroup.take() } else { None };
        if stdin == StdinSpec::Closed {
            stdio.stdin = Stdin::closed();
        }
        if let Some(pid) = pid {
            self.children.insert(pid, Owner::Exec(exec));
        }
        let prepared = self.prepared(key, setting);
        self.send_line(key, &script.activation(setting, &prepared));
        Some(Started { pid, group: pid, stdio, cgroup, interpreter: Some(key) })
    }
}
