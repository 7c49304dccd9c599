//! The launcher: the steps from a fresh process to a jailed program and its supervisor.
//!
//! A process cannot enter a new pid namespace itself, only its children can. So the launcher enters the namespaces, starts
//! the supervisor as the first process in them, and ends. The supervisor is the caller's child, not the launcher's. It
//! sees no process but its own descendants, and the program does not see the supervisor.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::process::ExitCode;

use rustix::fs::{Access, Mode, OFlags, access, open};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, socketpair};
use rustix::process::{Pid, PidfdFlags, pidfd_open, setsid, umask};

use super::landlock_rules::{Landlock, SupervisorRules};
use super::log::BoundedLog;
use super::memory_open::MemoryOpen;
use super::program::{self, Message};
use super::resources::{ABOVE_INHERITED, Resources};
use super::spec::{JOINED, Report, Spec, Step, StepError};
use super::supervisor::Supervisor;
use super::users::MachineUser;
use super::{LAYERS, MachineDir, filesystem, identity, limits, seccomp};
use crate::pass_fd;

/// When the host runs out of memory, the kernel kills the machine before its caller.
const OOM_SCORE_ADJUSTMENT: &str = "500";

/// The longest description of a jail.
const LARGEST_SPEC: usize = 128 * 1024;

/// What a binary does when its first argument is [`super::ARGUMENT`], before it starts any thread. Returns in the launcher
/// when the supervisor has started, and in the supervisor when the program has ended.
pub fn main() -> ExitCode {
    let supervisor = match set_up() {
        Ok(Some((supervisor, landlock))) => {
            let _ = report(&Report::Started { landlock }, Some(supervisor.pidfd.as_fd()));
            supervisor
        }
        Ok(None) => return ExitCode::SUCCESS,
        Err(StepError { step, error }) => {
            // This fails if the caller is dead.
            let _ = report(&Report::Failed { step, reason: error.to_string() }, None);
            return ExitCode::FAILURE;
        }
    };
    match release_standard_streams().and_then(|()| supervisor.run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn report(report: &Report, process: Option<BorrowedFd<'_>>) -> io::Result<()> {
    pass_fd::send(io::stdin(), &serde_json::to_vec(report)?, process, SendFlags::empty())?;
    Ok(())
}

/// `None` in the launcher once the supervisor has started.
fn set_up() -> Result<Option<(Supervisor, Landlock)>, StepError> {
    detach_from_caller().step("leaving the caller's session")?;
    let spec = read_spec().step("reading the description of the jail")?;
    for cgroup in &spec.cgroups {
        fs::write(cgroup.join("cgroup.procs"), "0").step(format!("joining {}", cgroup.display()))?;
    }
    // Best effort: a host without /proc does not have this setting.
    let _ = fs::write("/proc/self/oom_score_adj", OOM_SCORE_ADJUSTMENT);
    limits::make_room_for_executable().step("making room for the program's descriptor")?;
    let user = MachineUser::choose(&spec)?;
    let resources = Resources::open(&spec, &user)?;
    let user = identity::enter_namespaces(user)?;
    filesystem::enter(&spec, &user)?;
    if spec.joined_by_caller {
        await_groups().step("waiting for the control groups")?;
    }
    if let Some(supervisor) = start_supervisor().step("starting the supervisor")? {
        report(&Report::Supervisor, Some(supervisor.as_fd())).step("reporting the supervisor")?;
        return Ok(None);
    }
    identity::nest_pid_namespace().step("making the program's pid namespace")?;
    identity::drop_privileges(&user, &spec)?;
    for layer in &spec.program.layers {
        let path = format!("{LAYERS}/{}", layer.name);
        access(path, Access::READ_OK).step(format!("reading the layer {} as the machine's user", layer.name))?;
    }
    start(&spec, resources, user).map(Some)
}

/// Waits until the caller has moved this process to its control groups.
fn await_groups() -> io::Result<()> {
    let mut packet = [0; JOINED.len()];
    match recv(io::stdin(), packet.as_mut_slice(), RecvFlags::empty())? {
        _ if packet == *JOINED => Ok(()),
        _ => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

/// Forks a child whose parent is the caller. Returns its pidfd in the launcher, and `None` in the child.
fn start_supervisor() -> io::Result<Option<OwnedFd>> {
    let mut pidfd = -1;
    let flags = libc::CLONE_PARENT | libc::CLONE_PIDFD | libc::SIGCHLD;
    // SAFETY: without a stack, this is a fork, and this process has one thread, so the child may run any code. The kernel
    // writes the pidfd to a live integer.
    match unsafe { libc::syscall(libc::SYS_clone, flags, 0, &raw mut pidfd, 0, 0) } {
        0 => Ok(None),
        // SAFETY: just created, and not owned by anything else.
        1.. => Ok(Some(unsafe { OwnedFd::from_raw_fd(pidfd) })),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Starts a new session and closes all descriptors except the three standard streams.
fn detach_from_caller() -> io::Result<()> {
    // SAFETY: nothing in this process has opened a descriptor yet.
    if unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    setsid()?;
    umask(Mode::from_raw_mode(0o022));
    Ok(())
}

fn read_spec() -> io::Result<Spec> {
    let mut packet = vec![0; LARGEST_SPEC];
    let (length, _) = recv(io::stdin(), packet.as_mut_slice(), RecvFlags::empty())?;
    Ok(serde_json::from_slice(&packet[..length])?)
}

fn start(spec: &Spec, resources: Resources, user: MachineUser) -> Result<(Supervisor, Landlock), StepError> {
    let (ours, low) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .step("making a connection to the program")?;
    // An inherited descriptor must not get this one's number.
    let childs = fcntl_dupfd_cloexec(&low, ABOVE_INHERITED).step("numbering descriptors")?;
    drop(low);
    // SAFETY: this process has one thread, so the child may run any code.
    let pid = match unsafe { libc::fork() } {
        0 => {
            drop(ours);
            program::run(spec, &resources, &childs)
        }
        pid => Pid::from_raw(pid).filter(|_| pid > 0).ok_or_else(io::Error::last_os_error).step("forking")?,
    };
    drop(childs);
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).step("watching the program")?;
    rustix::io::write(&ours, b"g").step("signalling the program")?;
    let (landlock, questions) = wait_until_program_runs(&ours)?;
    let rules = SupervisorRules::new(&resources.supervisor_dir).map_err(io::Error::other);
    let rules = rules.step("making the supervisor's rules (Landlock)")?;
    seccomp::install_for_supervisor().map_err(io::Error::other).step("installing the supervisor's seccomp filters")?;
    let mut supervisor = make_supervisor(pid, pidfd, questions, resources, user).step("opening logs")?;
    supervisor.rules = Some(rules);
    Ok((supervisor, landlock))
}

fn wait_until_program_runs(child: &OwnedFd) -> Result<(Landlock, OwnedFd), StepError> {
    let mut ready = None;
    while let Some((message, fd)) = program::receive(child).step("receiving from the program")? {
        match message {
            Message::Ready { landlock } => ready = fd.map(|questions| (landlock, questions)),
            Message::Failed { step, reason } => return Err(io::Error::other(reason)).step(step),
        }
    }
    ready.ok_or_else(|| io::Error::other("the program ended before it was ready")).step("starting the program")
}

fn make_supervisor(
    pid: Pid,
    pidfd: OwnedFd,
    questions: OwnedFd,
    resources: Resources,
    user: MachineUser,
) -> io::Result<Supervisor> {
    let Resources { supervisor_dir, memory, console, cable, program_output, .. } = resources;
    let log = |fd: OwnedFd, name| Ok::<_, io::Error>((fd, BoundedLog::create(supervisor_dir.try_clone()?, name)?));
    Ok(Supervisor {
        pid,
        pidfd,
        memory_open: MemoryOpen::new(questions, memory),
        cable,
        console: console.map(|fd| log(fd, MachineDir::CONSOLE_LOG)).transpose()?,
        output: Some(log(program_output, MachineDir::PROGRAM_LOG)?),
        caller: Some(io::stdin().as_fd().try_clone_to_owned()?.into()),
        directory: supervisor_dir,
        rules: None,
        _user: user,
    })
}

/// Closes the standard streams. The supervisor has another descriptor of the connection to the caller, which it closes when
/// the caller keeps the program.
fn release_standard_streams() -> io::Result<()> {
    let nowhere = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&nowhere)?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    rustix::stdio::dup2_stderr(&nowhere)?;
    Ok(())
}
