//! The descriptors that connect the agent to a command: pipes, or a terminal.

use std::os::fd::OwnedFd;

use sandling_protocol::{Stdin as StdinSpec, TerminalSize};

use super::pipes::Pipes;
use super::plan::Setting;
use super::stdin::Stdin;
use crate::cgroup::Cgroup;
use crate::sys::fds;

/// The agent's ends of a command's descriptors.
pub struct AgentStdio {
    pub pipes: Pipes,
    pub stdin: Stdin,
}

/// The command's ends, which the agent closes once the command runs.
pub struct CommandStdio {
    /// `None`: the command has no input.
    pub stdin: Option<OwnedFd>,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

/// A process that runs, or that will run as soon as its interpreter is ready.
pub struct Started {
    pub pid: Option<u32>,
    /// Its process group.
    pub group: Option<u32>,
    pub stdio: AgentStdio,
    pub cgroup: Option<Cgroup>,
    pub interpreter: Option<u64>,
}

pub fn open_pipes(stdin: StdinSpec) -> std::io::Result<(AgentStdio, CommandStdio)> {
    let (stdout, their_stdout) = fds::pipe()?;
    let (stderr, their_stderr) = fds::pipe()?;
    fds::set_nonblocking(&stdout)?;
    fds::set_nonblocking(&stderr)?;
    let (stdin, their_stdin) = match stdin {
        StdinSpec::Closed => (Stdin::closed(), None),
        StdinSpec::Open => {
            let (theirs, ours) = fds::pipe()?;
            fds::set_nonblocking(&ours)?;
            (Stdin::pipe(ours), Some(theirs))
        }
    };
    let pipes = Pipes::new(stdout, stderr);
    Ok((AgentStdio { pipes, stdin }, CommandStdio { stdin: their_stdin, stdout: their_stdout, stderr: their_stderr }))
}

pub fn open_terminal(size: TerminalSize, setting: &Setting) -> std::io::Result<(AgentStdio, CommandStdio)> {
    let (ours, theirs) = fds::terminal(size)?;
    if let Some(ids) = setting.user.change() {
        // The user must be able to open the terminal by its name.
        rustix::fs::fchown(&theirs, Some(rustix::fs::Uid::from_raw(ids.uid)), None)?;
    }
    fds::set_nonblocking(&ours)?;
    let writer = ours.try_clone()?;
    let theirs = CommandStdio { stdin: Some(theirs.try_clone()?), stdout: theirs.try_clone()?, stderr: theirs };
    Ok((AgentStdio { pipes: Pipes::of_terminal(ours), stdin: Stdin::terminal(writer) }, theirs))
}
