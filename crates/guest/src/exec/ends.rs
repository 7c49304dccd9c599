//! The descriptors that connect the agent to a command: pipes, or a terminal.

use std::os::fd::OwnedFd;

use sandling_protocol::{Stdin as StdinSpec, TerminalSize};

use super::plan::Setting;
use super::record::Pipes;
use super::stdin::Stdin;
use crate::cgroup::Cgroup;
use crate::sys::fds;

/// The agent's ends of a command's descriptors.
pub struct AgentEnds {
    pub pipes: Pipes,
    pub stdin: Stdin,
}

/// The command's ends, which the agent closes once the command runs.
pub struct CommandEnds {
    /// `None`: the command has no input.
    pub stdin: Option<OwnedFd>,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

/// A process that runs, or that will run as soon as its interpreter is ready.
pub struct Started {
    pub pid: Option<u32>,
    pub ends: AgentEnds,
    pub cgroup: Option<Cgroup>,
    pub interpreter: Option<u64>,
}

pub fn pipe_ends(stdin: StdinSpec) -> std::io::Result<(AgentEnds, CommandEnds)> {
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
    let pipes = Pipes::Apart { stdout: Some(stdout), stderr: Some(stderr) };
    Ok((AgentEnds { pipes, stdin }, CommandEnds { stdin: their_stdin, stdout: their_stdout, stderr: their_stderr }))
}

pub fn terminal_ends(size: TerminalSize, setting: &Setting) -> std::io::Result<(AgentEnds, CommandEnds)> {
    let (ours, theirs) = fds::terminal(size)?;
    if let Some(ids) = setting.user.change() {
        // The user must be able to open the terminal by its name.
        rustix::fs::fchown(&theirs, Some(rustix::fs::Uid::from_raw(ids.uid)), None)?;
    }
    fds::set_nonblocking(&ours)?;
    let writer = ours.try_clone()?;
    let theirs = CommandEnds { stdin: Some(theirs.try_clone()?), stdout: theirs.try_clone()?, stderr: theirs };
    Ok((AgentEnds { pipes: Pipes::Terminal(Some(ours)), stdin: Stdin::terminal(writer) }, theirs))
}
