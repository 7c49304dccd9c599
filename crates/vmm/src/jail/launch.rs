//! The caller's side: starts the launcher, sends it the description of the jail, and reads its report.

use std::io;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};

use super::config::JailConfig;
use super::landlock_rules::Landlock;
use super::spec::{JOINED, KEEP, Program, Report, SEEN, Spec};
use super::{ARGUMENT, MachineDir};
use crate::cgroup::Cgroup;
use crate::pass_fd;
use crate::process::Process;

/// Building a jail takes milliseconds; a host on which it takes this long is broken.
const START_LIMIT: Duration = Duration::from_secs(20);

const LARGEST_REPORT: usize = 16 * 1024;

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
    /// The connection to the supervisor, until the program may outlive this value.
    keep: Option<OwnedFd>,
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
            Some(supervisor) => tell(&supervisor, KEEP),
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
        cgroups: Vec::new(),
        joined_by_caller: cgroup.is_some(),
    };
    start(&spec, config, cgroup.clone()).inspect_err(|_| {
        if let Some(cgroup) = cgroup {
            let _ = cgroup.remove();
        }
    })
}

fn start(spec: &Spec, config: &JailConfig, cgroup: Option<Cgroup>) -> Result<Jailed, LaunchError> {
    let failed = |source| LaunchError::Spawn { launcher: config.launcher.clone(), source };
    let (connection, launchers) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(|error| failed(error.into()))?;
    let mut launcher = Command::new(&config.launcher)
        .arg(ARGUMENT)
        .env_clear()
        .current_dir("/")
        .stdin(launchers)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let mut supervisor = None;
    let started = send_spec(&connection, spec)
        .and_then(|()| cgroup.as_ref().map_or(Ok(()), |cgroup| join(cgroup, launcher.id(), &connection)))
        .and_then(|()| exchange(&connection, &mut supervisor));
    if started.is_err() {
        let _ = launcher.kill();
    }
    let _ = launcher.wait();
    match (started, supervisor) {
        (Ok((program, landlock)), Some(supervisor)) => {
            let processes = Arc::new(Processes { program, supervisor, cgroup: Mutex::new(cgroup), _user: None });
            Ok(Jailed { processes, landlock, keep: Some(connection) })
        }
        (started, supervisor) => {
            if let Some(supervisor) = supervisor {
                // The program dies with it.
                let _ = supervisor.kill();
                wait_until(|| supervisor.has_ended());
                supervisor.reap();
            }
            Err(started.err().unwrap_or_else(no_answer))
        }
    }
}

fn send_spec(connection: &OwnedFd, spec: &Spec) -> Result<(), LaunchError> {
    let packet = serde_json::to_vec(spec).map_err(|error| LaunchError::NoAnswer(error.into()))?;
    tell(connection, &packet).map_err(LaunchError::NoAnswer)
}

/// Moves the launcher to its control groups. The kernel takes up to some 10 ms for that, in which the launcher builds the
/// jail.
fn join(cgroup: &Cgroup, launcher: u32, connection: &OwnedFd) -> Result<(), LaunchError> {
    match cgroup.join(launcher) {
        // A launcher that has ended has reported why.
        Err(error) if error.raw_os_error() != Some(libc::ESRCH) => {
            Err(LaunchError::Setup { step: "joining the control groups".to_owned(), reason: error.to_string() })
        }
        _ => {
            let _ = tell(connection, JOINED);
            Ok(())
        }
    }
}

/// Waits for the handles on both processes. The supervisor's is also set if this fails.
fn exchange(connection: &OwnedFd, supervisor: &mut Option<Process>) -> Result<(Process, Landlock), LaunchError> {
    let given_up = Instant::now() + START_LIMIT;
    let (mut program, mut failure) = (None, None);
    while program.is_none() || supervisor.is_none() {
        match next_report(connection, given_up).map_err(LaunchError::NoAnswer)? {
            Some((Report::Supervisor, Some(pidfd))) => {
                *supervisor = Some(Process::of_pidfd(pidfd).map_err(LaunchError::NoAnswer)?);
            }
            Some((Report::Started { landlock }, Some(pidfd))) => {
                program = Some((Process::of_pidfd(pidfd).map_err(LaunchError::NoAnswer)?, landlock));
            }
            // The launcher's report of the supervisor may follow the supervisor's report of its failure.
            Some((Report::Failed { step, reason }, _)) => failure = Some(LaunchError::Setup { step, reason }),
            Some(_) | None => return Err(failure.unwrap_or_else(no_answer)),
        }
    }
    tell(connection, SEEN).map_err(LaunchError::NoAnswer)?;
    program.ok_or_else(no_answer)
}

fn no_answer() -> LaunchError {
    LaunchError::NoAnswer(io::ErrorKind::UnexpectedEof.into())
}

fn tell(connection: &OwnedFd, packet: &[u8]) -> io::Result<()> {
    send(connection, packet, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// `None` if both processes have ended.
fn next_report(connection: &OwnedFd, given_up: Instant) -> io::Result<Option<(Report, Option<OwnedFd>)>> {
    let left = given_up.saturating_duration_since(Instant::now());
    let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    if poll(&mut [PollFd::new(connection, PollFlags::IN)], Some(&left))? == 0 {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let mut packet = [0; LARGEST_REPORT];
    let received = match pass_fd::receive(connection, &mut packet) {
        // A launcher that fails may end before it has read `JOINED`. What it sent before is still there.
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => pass_fd::receive(connection, &mut packet)?,
        received => received?,
    };
    match received {
        (0, _) => Ok(None),
        (length, pidfd) => Ok(Some((serde_json::from_slice(&packet[..length])?, pidfd))),
    }
}
