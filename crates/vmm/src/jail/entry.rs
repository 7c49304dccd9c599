//! The launcher: the steps from a fresh process to a jailed program and its supervisor.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;

use rustix::fs::{Access, Mode, OFlags, access, open};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, PidfdFlags, pidfd_open, setsid, umask};

use super::landlock_rules::{Landlock, SupervisorRules};
use super::log::BoundedLog;
use super::memory_open::MemoryOpen;
use super::program::{self, Message};
use super::resources::{ABOVE_INHERITED, Resources};
use super::spec::{Report, Spec, Step, StepError};
use super::supervisor::Supervisor;
use super::users::MachineUser;
use super::{LAYERS, MachineDir, filesystem, identity, limits, seccomp};

/// When the host runs out of memory, the kernel kills the machine before its caller.
const OOM_SCORE_ADJUSTMENT: &str = "500";

/// What a binary does when its first argument is [`super::ARGUMENT`], before it starts any thread.
pub fn main() -> ExitCode {
    let supervisor = match set_up() {
        Ok((supervisor, landlock)) => {
            let _ = report(&Report::Started { pid: supervisor.pid.as_raw_pid(), landlock });
            supervisor
        }
        Err(StepError { step, error }) => {
            // This fails if the caller is dead.
            let _ = report(&Report::Failed { step, reason: error.to_string() });
            return ExitCode::FAILURE;
        }
    };
    match release_standard_streams().and_then(|()| supervisor.run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn report(report: &Report) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, report)?;
    out.write_all(b"\n")?;
    out.flush()
}

fn set_up() -> Result<(Supervisor, Landlock), StepError> {
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
    identity::drop_privileges(&user, &spec)?;
    for layer in &spec.program.layers {
        let path = format!("{LAYERS}/{}", layer.name);
        access(path, Access::READ_OK).step(format!("reading the layer {} as the machine's user", layer.name))?;
    }
    start(&spec, resources, user)
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

/// Reads one line. The supervisor reads what follows it, so the buffer must not contain more: the caller writes nothing
/// else until we have reported.
fn read_spec() -> io::Result<Spec> {
    let mut line = String::new();
    BufReader::new(io::stdin()).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
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

/// Closes the caller's pipes, which must not stay open while the program runs.
fn release_standard_streams() -> io::Result<()> {
    let nowhere = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&nowhere)?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    rustix::stdio::dup2_stderr(&nowhere)?;
    Ok(())
}
