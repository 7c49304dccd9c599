//! The supervisor: the program's parent while it runs.
//!
//! It ends the program at the deadline, answers its opens of guest memory, hands out the other end of its network,
//! bounds its logs, and records how it ended. It has the program's user and no privilege. It outlives the caller, and if
//! it dies itself, the kernel kills the program.
//!
//! It reads what a compromised program sends, so it is confined, too: to the system calls of its own list
//! (`seccomp.rs`), and, once the caller keeps the program, to its own directory (`landlock_rules.rs`). Landlock comes
//! that late because the supervisor could not read the program's memory any more, from which it learns what the program
//! opens while it starts.
//!
//! It is the first process of its own pid namespace, and the program that of another one inside: the supervisor can name
//! no process but the program, and the program none but itself. Pids differ between namespaces, so the caller gets a
//! pidfd of both.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, openat, renameat};
use rustix::process::{Pid, Signal, WaitIdOptions, pidfd_send_signal, waitid};

use super::MachineDir;
use super::cable::Cable;
use super::death::Death;
use super::landlock_rules::SupervisorRules;
use super::log::BoundedLog;
use super::memory_open::MemoryOpen;
use super::spec::{KEEP, SEEN};
use super::users::MachineUser;

/// How often the supervisor checks the deadline.
const TICK: Duration = Duration::from_secs(1);

/// How much unread output of a dead program is still written to its log.
const UNREAD_OUTPUT_BYTES: usize = 1024 * 1024;

pub(super) struct Supervisor {
    pub pid: Pid,
    pub pidfd: OwnedFd,
    pub directory: OwnedFd,
    pub memory_open: MemoryOpen,
    pub cable: Option<Cable>,
    pub console: Option<(OwnedFd, BoundedLog)>,
    pub output: Option<(OwnedFd, BoundedLog)>,
    /// The connection to the caller, until the caller lets the program outlive it.
    pub caller: Option<std::fs::File>,
    /// In force once the caller keeps the program.
    pub rules: Option<SupervisorRules>,
    /// Held so that no other machine gets the same user.
    pub _user: MachineUser,
}

/// What the supervisor waits for.
#[derive(Clone, Copy)]
enum Source {
    Program,
    MemoryOpen,
    Cable,
    Console,
    Output,
    Caller,
}

impl Supervisor {
    /// Supervises until the program has ended.
    pub fn run(mut self) -> io::Result<()> {
        let mut killed_for = None;
        if !self.receives(SEEN) {
            self.kill(&mut killed_for, Death::SupervisorLost);
        }
        let mut next_check = Instant::now();
        loop {
            for source in self.wait(next_check)? {
                match source {
                    Source::Program => return self.finish(killed_for),
                    Source::MemoryOpen => self.memory_open.answer(),
                    Source::Cable => self.cable.iter().for_each(Cable::hand_out),
                    Source::Console => forward(&mut self.console),
                    Source::Output => forward(&mut self.output),
                    Source::Caller => {
                        if !self.receives(KEEP) {
                            self.kill(&mut killed_for, Death::SupervisorLost);
                        }
                        self.caller = None;
                        if let Some(rules) = self.rules.take() {
                            rules.enforce();
                        }
                    }
                }
            }
            if Instant::now() >= next_check {
                next_check = Instant::now() + TICK;
                if self.deadline_has_passed() {
                    self.kill(&mut killed_for, Death::Deadline);
                }
            }
        }
    }

    /// Waits until something is ready, but no longer than until the next check of the deadline.
    fn wait(&self, until: Instant) -> io::Result<Vec<Source>> {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let mut watched: Vec<(Source, BorrowedFd<'_>)> = vec![(Source::Program, self.pidfd.as_fd())];
        watched.push((Source::MemoryOpen, self.memory_open.questions()));
        watched.extend(self.cable.as_ref().map(|cable| (Source::Cable, cable.listener())));
        watched.extend(self.console.as_ref().map(|(fd, _)| (Source::Console, fd.as_fd())));
        watched.extend(self.output.as_ref().map(|(fd, _)| (Source::Output, fd.as_fd())));
        watched.extend(self.caller.as_ref().map(|fd| (Source::Caller, fd.as_fd())));
        let mut polled: Vec<_> = watched.iter().map(|(_, fd)| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        match poll(&mut polled, Some(&left)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = watched.iter().zip(&polled).filter(|(_, polled)| !polled.revents().is_empty());
        Ok(ready.map(|((source, _), _)| *source).collect())
    }

    /// Whether the caller's next message is this one. It is not if the caller is dead.
    fn receives(&mut self, expected: &[u8; 5]) -> bool {
        let mut word = [0; 5];
        let received = self.caller.as_mut().is_some_and(|caller| caller.read_exact(&mut word).is_ok());
        received && word == *expected
    }

    fn kill(&self, killed_for: &mut Option<Death>, reason: Death) {
        // This fails if the program has just ended; the next wait reports that.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        killed_for.get_or_insert(reason);
    }

    /// There is no deadline without the file, or if it does not contain a number. If the directory was removed, the
    /// deadline has passed: no caller could find the machine again.
    fn deadline_has_passed(&self) -> bool {
        if rustix::fs::fstat(&self.directory).is_ok_and(|directory| directory.st_nlink == 0) {
            return true;
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let Ok(file) = openat(&self.directory, MachineDir::DEADLINE, flags, Mode::empty()) else { return false };
        let mut text = String::new();
        if std::fs::File::from(file).take(64).read_to_string(&mut text).is_err() {
            return false;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis());
        text.trim().parse::<u64>().is_ok_and(|deadline| now >= u128::from(deadline))
    }

    fn finish(mut self, killed_for: Option<Death>) -> io::Result<()> {
        let status = waitid(rustix::process::WaitId::Pid(self.pid), WaitIdOptions::EXITED)?;
        for log in [&mut self.console, &mut self.output] {
            for _ in 0..UNREAD_OUTPUT_BYTES / BUFFER_BYTES {
                forward(log);
            }
        }
        let seen = match status.as_ref().and_then(|status| status.terminating_signal()) {
            Some(signal) => Death::Signalled { signal },
            None => Death::Exited { code: status.and_then(|status| status.exit_status()).unwrap_or(-1) },
        };
        self.write_report(&killed_for.unwrap_or(seen))
    }

    /// Writes the report atomically.
    fn write_report(&self, report: &Death) -> io::Result<()> {
        const FRESH: &str = "exit.json.new";
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        let file = openat(&self.directory, FRESH, flags, Mode::from_raw_mode(0o644))?;
        serde_json::to_writer(std::fs::File::from(file), report)?;
        Ok(renameat(&self.directory, FRESH, &self.directory, MachineDir::EXIT)?)
    }
}

const BUFFER_BYTES: usize = 16 * 1024;

/// Moves available output into the log, and closes the stream at its end.
fn forward(source: &mut Option<(OwnedFd, BoundedLog)>) {
    let Some((fd, log)) = source else { return };
    let mut buffer = [0; BUFFER_BYTES];
    match rustix::io::read(fd.as_fd(), &mut buffer) {
        Ok(length) if length > 0 => log.append(&buffer[..length]),
        Err(rustix::io::Errno::INTR) => {}
        _ => *source = None,
    }
}
