//! A process that cannot be mistaken for another: the kernel reuses pids, but not a pid with its start time.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid};
use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The record of a process by which a later caller finds that same process, or none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub pid: i32,
    start_ticks: u64,
    boot_id: String,
}

impl Identity {
    pub fn of(pid: i32) -> io::Result<Self> {
        Ok(Self { pid, start_ticks: start_ticks(pid)?, boot_id: boot_id()? })
    }

    /// A handle on this process, or `None` if it has ended, even if another process has its pid now.
    pub fn open(&self) -> io::Result<Option<Process>> {
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(None) };
        let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(rustix::io::Errno::SRCH) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // Compared after the handle was opened: from then on, another process that gets this pid is not the one of the
        // handle.
        match Self::of(self.pid) {
            Ok(now) if now == *self => Ok(Some(Process { identity: now, pidfd })),
            Ok(_) => Ok(None),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// A handle on one process, by pidfd.
#[derive(Debug)]
pub(crate) struct Process {
    identity: Identity,
    pidfd: OwnedFd,
}

impl Process {
    /// The process of a pidfd that a process in another pid namespace may have opened. It must not be reaped yet.
    pub fn of_pidfd(pidfd: OwnedFd) -> io::Result<Self> {
        let about = fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd()))?;
        let pid = about.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok());
        // The kernel shows a pid that is not positive if the process has been reaped.
        let pid = pid.filter(|pid| *pid > 0).ok_or(io::ErrorKind::NotFound)?;
        Ok(Self { identity: Identity::of(pid)?, pidfd })
    }

    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    pub fn pid(&self) -> i32 {
        self.identity.pid
    }

    /// Sends SIGKILL. It is no error if the process has ended already.
    pub fn kill(&self) -> io::Result<()> {
        match pidfd_send_signal(&self.pidfd, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    pub fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1))
    }

    /// Completes when the process has ended.
    pub async fn ended(&self) -> io::Result<()> {
        // SAFETY: the descriptor is borrowed for longer than the registration lives, and stays the same meanwhile.
        let watched = unsafe { AsyncFd::register_with_interest(self.pidfd.as_fd(), Interest::READABLE) }?;
        let _readable = watched.readable().await?;
        Ok(())
    }

    /// Reaps the process if it is our child, so that it does not stay a zombie.
    pub fn reap(&self) {
        let _ = waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// The fields of `/proc/PID/stat` after the command name, which may itself hold spaces and parentheses.
pub(crate) fn stat_fields(pid: i32) -> io::Result<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').ok_or(io::ErrorKind::InvalidData)?;
    Ok(fields.split_whitespace().map(str::to_owned).collect())
}

fn start_ticks(pid: i32) -> io::Result<u64> {
    const START_TIME: usize = 19;
    let fields = stat_fields(pid)?;
    let ticks = fields.get(START_TIME).and_then(|field| field.parse().ok());
    ticks.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn an_identity_finds_its_process_until_it_ends() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let identity = Identity::of(child.id() as i32).unwrap();
        let process = identity.open().unwrap().expect("alive");
        assert!(!process.has_ended());
        process.kill().unwrap();
        child.wait().unwrap();
        assert!(process.has_ended());
        assert!(identity.open().unwrap().is_none());
        process.kill().expect("killing a process that has ended is no error");
    }

    #[test]
    fn a_pidfd_finds_its_process_until_it_is_reaped() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let open = || pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
        let (alive, reaped) = (open(), open());
        let process = Process::of_pidfd(alive).unwrap();
        assert_eq!(process.pid(), child.id() as i32);
        process.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(Process::of_pidfd(reaped).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn another_process_under_the_same_pid_is_not_found() {
        let me = Identity::of(std::process::id() as i32).unwrap();
        let recycled = Identity { start_ticks: me.start_ticks + 1, ..me.clone() };
        assert!(recycled.open().unwrap().is_none());
        let before_reboot = Identity { boot_id: "another boot".to_owned(), ..me.clone() };
        assert!(before_reboot.open().unwrap().is_none());
        assert!(me.open().unwrap().is_some());
    }
}
