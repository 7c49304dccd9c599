//! The supervisor's child, from the fork until it becomes the program.

use std::convert::Infallible;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags, open};
use rustix::net::SendFlags;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use super::landlock_rules::{self, Landlock};
use super::resources::Resources;
use super::spec::{Linkage, Program, Spec, Step, StepError};
use super::{FIRST_INHERITED, PRELOAD, limits, seccomp};
use crate::pass_fd;

/// The only descriptor that may be executed.
///
/// It is close-on-exec, and above the program's limit of descriptors, which the program cannot raise. Once the program
/// runs, no descriptor can have this number again, so the exec that starts the program is its last.
pub(super) const EXEC_FD: i32 = 1000;

const LARGEST_MESSAGE: usize = 4096;

/// The child's messages to the supervisor. After `Ready`, the end of the connection means that the program runs.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Message {
    Ready { landlock: Landlock },
    Failed { step: String, reason: String },
}

/// Becomes the program, or reports to the supervisor why it could not.
pub(super) fn run(spec: &Spec, resources: &Resources, supervisor: &OwnedFd) -> ! {
    let Err(failure) = become_program(spec, resources, supervisor);
    let message = Message::Failed { step: failure.step, reason: failure.error.to_string() };
    // If this fails, too, the supervisor still notices the child's end.
    let _ = send(supervisor, &message, None);
    // SAFETY: ends the process at once, without running the launcher's exit handlers.
    unsafe { libc::_exit(1) }
}

fn become_program(spec: &Spec, resources: &Resources, supervisor: &OwnedFd) -> Result<Infallible, StepError> {
    set_parent_process_death_signal(Some(Signal::KILL)).step("tying the program to its supervisor")?;
    // If the supervisor died before that call, the kernel does not signal it; then this read fails.
    wait_for_supervisor(supervisor).step("waiting for the supervisor")?;
    place_descriptors(resources).step("placing descriptors")?;
    let _executable = open_executable(&spec.program).step("opening the program")?;
    limits::apply(&spec.limits).step("setting resource limits")?;
    let landlock =
        landlock_rules::restrict(&spec.program).map_err(io::Error::other).step("restricting paths (Landlock)")?;
    if let Linkage::Static { .. } = spec.program.linkage {
        fix_addresses().step("turning off address randomization")?;
    }
    let questions = seccomp::install_answered().step("installing a seccomp filter")?;
    send(supervisor, &Message::Ready { landlock }, Some(&questions)).step("reporting to the supervisor")?;
    seccomp::install_final(spec.program.kvm).map_err(io::Error::other).step("installing the seccomp filters")?;
    Err(execute(&spec.program)).step("executing the program")
}

fn fix_addresses() -> io::Result<()> {
    // SAFETY: one number in, one out.
    if unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn wait_for_supervisor(supervisor: &OwnedFd) -> io::Result<()> {
    let mut byte = [0u8; 1];
    match rustix::io::read(supervisor, &mut byte)? {
        1 => Ok(()),
        _ => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

/// Standard input from `/dev/null`, output to the log, and then the inherited descriptors.
fn place_descriptors(resources: &Resources) -> io::Result<()> {
    let null = open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    place(&null, 0)?;
    // An inherited descriptor may need its number.
    drop(null);
    place(&resources.output, 1)?;
    place(&resources.output, 2)?;
    for (fd, number) in resources.inherit.iter().zip(FIRST_INHERITED..) {
        place(fd, number)?;
    }
    Ok(())
}

fn place(fd: &OwnedFd, number: i32) -> io::Result<()> {
    // SAFETY: two descriptor numbers; this process no longer uses the second one.
    if unsafe { libc::dup2(fd.as_raw_fd(), number) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn open_executable(program: &Program) -> io::Result<OwnedFd> {
    let file = open(program.place(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    // SAFETY: two descriptor numbers, the second of which is not in use.
    if unsafe { libc::dup3(file.as_raw_fd(), EXEC_FD, libc::O_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just created, and not owned by anything else.
    Ok(unsafe { OwnedFd::from_raw_fd(EXEC_FD) })
}

/// Executes the program with only the described environment. Returns only if that failed.
fn execute(program: &Program) -> io::Error {
    let path = program.place().as_os_str().as_encoded_bytes().to_vec();
    let words = std::iter::once(path).chain(program.arguments.iter().map(|word| word.clone().into_bytes()));
    let preload = program.preload.iter().map(|_| format!("LD_PRELOAD={PRELOAD}"));
    let variables = program.environment.iter().map(|(name, value)| format!("{name}={value}")).chain(preload);
    let (words, variables) = match (strings(words), strings(variables.map(String::into_bytes))) {
        (Ok(words), Ok(variables)) => (words, variables),
        (Err(error), _) | (_, Err(error)) => return error,
    };
    let (arguments, environment) = (pointers(&words), pointers(&variables));
    // SAFETY: NULL-terminated arrays of NUL-terminated strings, all alive during the call.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            EXEC_FD,
            c"".as_ptr(),
            arguments.as_ptr(),
            environment.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    };
    io::Error::last_os_error()
}

fn strings(words: impl Iterator<Item = Vec<u8>>) -> io::Result<Vec<CString>> {
    Ok(words.map(CString::new).collect::<Result<_, _>>()?)
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect()
}

fn send(supervisor: &OwnedFd, message: &Message, fd: Option<&OwnedFd>) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    pass_fd::send(supervisor, &text, fd.map(|fd| fd.as_fd()), SendFlags::empty())?;
    Ok(())
}

/// The child's next message and its descriptor, if it has one; `None` once the program runs or the child is dead.
pub(super) fn receive(child: &OwnedFd) -> io::Result<Option<(Message, Option<OwnedFd>)>> {
    let mut text = [0; LARGEST_MESSAGE];
    let (length, fd) = pass_fd::receive(child, &mut text)?;
    if length == 0 {
        return Ok(None);
    }
    Ok(Some((serde_json::from_slice(&text[..length])?, fd)))
}
