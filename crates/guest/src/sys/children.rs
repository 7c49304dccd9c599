//! Child processes, and how they end.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use rustix::process::{Pid, Signal, WaitOptions};

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Code(i32),
    Signal(i32),
}

/// A descriptor that becomes readable when a child ends. Blocks SIGCHLD from now on, also in threads started later.
pub fn watch() -> io::Result<OwnedFd> {
    // SAFETY: `set` is initialised by sigemptyset before any other use, and outlives the calls that read it.
    let fd = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGCHLD);
        if libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: signalfd has just returned this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Reaps and returns the next child that has ended.
pub fn next_ended() -> Option<(u32, Ending)> {
    loop {
        let (pid, status) = rustix::process::wait(WaitOptions::NOHANG).ok()??;
        let ending = match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Ending::Code(code),
            (_, Some(signal)) => Ending::Signal(signal),
            _ => continue,
        };
        return Some((pid.as_raw_nonzero().get() as u32, ending));
    }
}

/// Whether a child is being killed, or on its way out. Until it can be reaped, the kernel may take a while to run it once
/// more and to free its memory.
pub fn is_ending(pid: u32) -> bool {
    /// `PF_EXITING` of the kernel's `sched.h`.
    const EXITING: u64 = 0x4;
    const KILLED: u64 = 1 << (libc::SIGKILL - 1);
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    // Fields count from 1, and the second one, the name, ends at the last parenthesis.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).and_then(|field| field.parse::<u64>().ok()).unwrap_or_default();
    let (flags, pending) = (field(9), field(31));
    flags & EXITING != 0 || pending & KILLED != 0
}

/// Signals a process group by its leader, or the leader alone if it has not made its group yet.
///
/// Call it only for a child that has not been reaped: until then, no other process can get its number.
pub fn signal_group(pid: u32, signal: i32) -> io::Result<()> {
    let (Some(pid), Some(signal)) = (Pid::from_raw(pid as i32), signal_of(signal)) else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    };
    match rustix::process::kill_process_group(pid, signal) {
        Err(rustix::io::Errno::SRCH) => Ok(rustix::process::kill_process(pid, signal)?),
        // The leader may have left its group, but must still get the signal.
        Ok(()) if signal == Signal::KILL => {
            let _ = rustix::process::kill_process(pid, signal);
            Ok(())
        }
        result => Ok(result?),
    }
}

/// Signals a group whose leader is gone, and the member that the agent started, which may have made its own group since.
///
/// Call it only for a member that has not been reaped: until then, no other group or process can get these numbers.
pub fn signal_member(group: u32, pid: u32, signal: i32) -> io::Result<()> {
    let (Some(group), Some(member), Some(named)) =
        (Pid::from_raw(group as i32), Pid::from_raw(pid as i32), signal_of(signal))
    else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    };
    match rustix::process::getpgid(Some(member)) {
        Ok(own) if own != group => {
            let _ = rustix::process::kill_process_group(group, named);
            match own == member {
                true => signal_group(pid, signal),
                false => signal_process(pid, signal),
            }
        }
        _ => match rustix::process::kill_process_group(group, named) {
            Err(rustix::io::Errno::SRCH) => signal_process(pid, signal),
            result => Ok(result?),
        },
    }
}

pub fn signal_process(pid: u32, signal: i32) -> io::Result<()> {
    match (Pid::from_raw(pid as i32), signal_of(signal)) {
        (Some(pid), Some(signal)) => Ok(rustix::process::kill_process(pid, signal)?),
        _ => Err(io::Error::from(io::ErrorKind::InvalidInput)),
    }
}

/// Signals a process's main thread. A thread sees a signal of its own before anything that is sent to it later; a signal
/// of the process may go to another thread, which runs its handler when it gets to run.
///
/// Call it only for a child that has not been reaped.
pub fn signal_main_thread(pid: u32, signal: i32) -> io::Result<()> {
    // SAFETY: a system call that takes three numbers.
    match unsafe { libc::syscall(libc::SYS_tgkill, pid as libc::pid_t, pid as libc::pid_t, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn signal_of(number: i32) -> Option<Signal> {
    Signal::from_named_raw(number).or_else(|| {
        let realtime = (libc::SIGRTMIN()..=libc::SIGRTMAX()).contains(&number);
        // SAFETY: the number is within the range of real-time signals that libc leaves to applications.
        realtime.then(|| unsafe { Signal::from_raw_unchecked(number) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_signal_of_the_main_thread_is_for_no_other_thread() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let status = || std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        // A stopped process keeps its signals pending.
        signal_process(child.id(), libc::SIGSTOP).unwrap();
        while !status().contains("State:\tT") {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        // Not SIGINT, which this process may have been started to ignore.
        signal_main_thread(child.id(), libc::SIGUSR1).unwrap();
        let pending = status().lines().find_map(|line| line.strip_prefix("SigPnd:").map(str::to_owned)).unwrap();
        assert_eq!(u64::from_str_radix(pending.trim(), 16).unwrap(), 1 << (libc::SIGUSR1 - 1));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
