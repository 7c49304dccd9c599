//! The caller's side: starts the launcher, sends it the description of the jail, and reads its report.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::config::JailConfig;
use super::landlock_rules::Landlock;
use super::spec::{KEEP, Program, Report, SEEN, Spec};
use super::{ARGUMENT, MachineDir};
use crate::cgroup::Cgroup;
use crate::process::Process;

/// Building a jail takes milliseconds; a host on which it takes this long is broken.
const START_LIMIT: Duration = Duration::from_secs(20);

/// How long a killed process may take to end.
const END_LIMIT: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("cannot prepare the machine's directory")]
    Directory(#[source] io::Error),
    #[error("cannot read the host's control groups")]
    Cgroup(#[source] io::Error),
    #[error("cannot start the launcher {}", launcher.display())]
    Spawn { launcher: std::path::PathBuf, source: io::Error },
    #[error("the jail could not be built: {step}: {reason}")]
    Setup { step: String, reason: String },
    #[error("the launcher did not answer")]
    NoAnswer(#[source] io::Error),
}

/// A jailed program's two processes, and the control group that limits them.
#[derive(Debug)]
pub(crate) struct Processes {
    pub program: Process,
    pub supervisor: Process,
    /// Changes when the machine gets a tenant.
    pub cgroup: Mutex<Option<Cgroup>>,
    /// The claim on the machine's user, if its supervisor is of a version that did not claim users.
    pub _user: Option<OwnedFd>,
}

impl Processes {
    pub fn cgroup(&self) -> Option<Cgroup> {
        self.cgroup.lock().ok()?.clone()
    }
}

/// A running jailed program. It ends if this is dropped before [`Jailed::keep`].
#[derive(Debug)]
pub struct Jailed {
    processes: Arc<Processes>,
    landlock: Landlock,
    keep: Option<ChildStdin>,
}

impl Jailed {
    pub fn pid(&self) -> i32 {
        self.processes.program.pid()
    }

    pub fn supervisor_pid(&self) -> i32 {
        self.processes.supervisor.pid()
    }

    pub fn landlock(&self) -> Landlock {
        self.landlock
    }

    pub(crate) fn processes(&self) -> &Arc<Processes> {
        &self.processes
    }

    /// Lets the program outlive this value and this process. Call this after recording the program on disk.
    pub fn keep(&mut self) -> io::Result<()> {
        match self.keep.take() {
            Some(mut supervisor) => supervisor.write_all(KEEP),
            None => Ok(()),
        }
    }
}

impl Drop for Jailed {
    fn drop(&mut self) {
        if self.keep.take().is_none() {
            return;
        }
        let Processes { program, supervisor, .. } = &*self.processes;
        let _ = program.kill();
        wait_until(|| supervisor.has_ended());
        supervisor.reap();
        if let Some(cgroup) = self.processes.cgroup() {
            wait_until(|| cgroup.remove().is_ok());
        }
    }
}

/// Polls a condition. A killed process ends within a millisecond or two, so a drop can wait for that.
fn wait_until(mut done: impl FnMut() -> bool) {
    let given_up = Instant::now() + END_LIMIT;
    while !done() && Instant::now() < given_up {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Starts a program in its own jail. Blocks for some milliseconds.
pub fn launch(program: &Program, directory: &MachineDir, config: &JailConfig) -> Result<Jailed, LaunchError> {
    directory.create().map_err(LaunchError::Directory)?;
    MachineDir::remove(&directory.exit_report()).map_err(LaunchError::Directory)?;
    let path = directory.path().canonicalize().map_err(LaunchError::Directory)?;
    let cgroup = Cgroup::create(&path, &config.limits.cgroup).map_err(LaunchError::Cgroup)?;
    let spec = Spec {
        program: program.clone(),
        directory: path,
        limits: config.limits.clone(),
        user_namespace: config.user_namespace,
        cgroups: cgroup.iter().flat_map(|cgroup| cgroup.directories.clone()).collect(),
    };
    start(&spec, config, cgroup.clone()).inspect_err(|_| {
        if let Some(cgroup) = cgroup {
            let _ = cgroup.remove();
        }
    })
}

fn start(spec: &Spec, config: &JailConfig, cgroup: Option<Cgroup>) -> Result<Jailed, LaunchError> {
    let mut child = Command::new(&config.launcher)
        .arg(ARGUMENT)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|source| LaunchError::Spawn { launcher: config.launcher.clone(), source })?;
    let started = exchange(&mut child, spec).and_then(|(pid, landlock, mut keep)| {
        let program = Process::open(pid).map_err(LaunchError::NoAnswer)?;
        let supervisor = Process::open(child.id() as i32).map_err(LaunchError::NoAnswer)?;
        keep.write_all(SEEN).map_err(LaunchError::NoAnswer)?;
        let processes = Arc::new(Processes { program, supervisor, cgroup: Mutex::new(cgroup), _user: None });
        Ok(Jailed { processes, landlock, keep: Some(keep) })
    });
    if started.is_err() {
        // The launcher's own child dies with it.
        let _ = child.kill();
        let _ = child.wait();
    }
    started
}

fn exchange(child: &mut Child, spec: &Spec) -> Result<(i32, Landlock, ChildStdin), LaunchError> {
    let (Some(mut to_launcher), Some(mut from_launcher)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(LaunchError::NoAnswer(io::ErrorKind::BrokenPipe.into()));
    };
    let mut line = serde_json::to_vec(spec).map_err(|error| LaunchError::NoAnswer(error.into()))?;
    line.push(b'\n');
    to_launcher.write_all(&line).map_err(LaunchError::NoAnswer)?;
    match read_report(&mut from_launcher).map_err(LaunchError::NoAnswer)? {
        Report::Started { pid, landlock } => Ok((pid, landlock, to_launcher)),
        Report::Failed { step, reason } => Err(LaunchError::Setup { step, reason }),
    }
}

fn read_report(from_launcher: &mut ChildStdout) -> io::Result<Report> {
    let given_up = Instant::now() + START_LIMIT;
    let mut line = Vec::new();
    let mut buffer = [0; 4096];
    while !line.ends_with(b"\n") {
        let left = given_up.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        if poll(&mut [PollFd::new(from_launcher, PollFlags::IN)], Some(&left))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match from_launcher.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            length => line.extend_from_slice(&buffer[..length]),
        }
    }
    Ok(serde_json::from_slice(&line)?)
}
