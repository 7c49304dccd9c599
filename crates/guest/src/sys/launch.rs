//! Starting a program.
//!
//! Not with `posix_spawn` or `std::process`, which cannot change the user and enter a cgroup without a full fork. Here, as
//! with vfork, the child shares the agent's memory until it calls exec, so nothing is copied, however much output the
//! agent holds. Until then, the child makes system calls only.
//!
//! The caller blocks until the program runs or has failed to start. A program on a hanging file system blocks it, too.

use std::ffi::{CString, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// Everything the child needs, prepared before it exists.
pub struct Launch<'a> {
    /// The paths to try for the program, in order.
    pub programs: Vec<CString>,
    pub arguments: Vec<CString>,
    pub environment: Vec<CString>,
    pub directory: CString,
    /// `None`: the agent's own.
    pub user: Option<Ids>,
    pub stdio: [BorrowedFd<'a>; 3],
    /// Become the descriptors from 3.
    pub extra: Vec<BorrowedFd<'a>>,
    pub session: Session,
    /// The `cgroup.procs` file of the group to enter.
    pub cgroup: Option<BorrowedFd<'a>>,
    pub niceness: i32,
}

/// The new session in which a program starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Session {
    /// The program is a member of a session and a group whose leader is gone. So it can start its own, as `setsid` does
    /// without a fork, and its exit status is that of the program that it runs.
    #[default]
    Member,
    /// The program leads its session and its group.
    Leader,
    /// It leads them, and stdin is a terminal, which becomes the controlling one.
    LeaderWithTerminal,
}

/// A program that runs.
#[derive(Debug, Clone, Copy)]
pub struct Launched {
    pub pid: u32,
    /// Its process group.
    pub group: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ids {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

/// Why a program did not start.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("cannot start a process")]
    Clone(#[source] io::Error),
    #[error("cannot prepare the new process")]
    Prepare(#[source] io::Error),
    #[error("cannot become the user")]
    User(#[source] io::Error),
    #[error("cannot enter the working directory")]
    Directory(#[source] io::Error),
    #[error("cannot execute the program")]
    Execute(#[source] io::Error),
}

const STACK_BYTES: usize = 64 * 1024;

#[derive(Clone, Copy)]
enum Step {
    Clone,
    Prepare,
    User,
    Directory,
    Execute,
}

/// The child's view: plain pointers and numbers, and a place to report a failure.
struct Child {
    programs: Vec<*const c_char>,
    arguments: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    directory: *const c_char,
    user: Option<(u32, u32, *const u32, usize)>,
    stdio: [RawFd; 3],
    extra: Vec<RawFd>,
    session: Session,
    cgroup: Option<RawFd>,
    niceness: i32,
    /// The stack of a member of a session, whose leader starts it.
    member_stack: *mut c_void,
    member: c_int,
    failure: Option<(Step, c_int)>,
}

/// Starts the program in a new session.
pub fn launch(plan: &Launch<'_>) -> Result<Launched, LaunchError> {
    let mut member_stack: Vec<u128> = match plan.session {
        Session::Member => Vec::with_capacity(STACK_BYTES / size_of::<u128>()),
        Session::Leader | Session::LeaderWithTerminal => Vec::new(),
    };
    let mut child = Child {
        programs: pointers(&plan.programs),
        arguments: pointers(&plan.arguments),
        environment: pointers(&plan.environment),
        directory: plan.directory.as_ptr(),
        user: plan.user.as_ref().map(|ids| (ids.uid, ids.gid, ids.groups.as_ptr(), ids.groups.len())),
        stdio: plan.stdio.map(|fd| fd.as_raw_fd()),
        extra: plan.extra.iter().map(|fd| fd.as_raw_fd()).collect(),
        session: plan.session,
        cgroup: plan.cgroup.map(|fd| fd.as_raw_fd()),
        niceness: plan.niceness,
        // SAFETY: the end of the memory that the vector owns.
        member_stack: unsafe { member_stack.as_mut_ptr().add(member_stack.capacity()).cast() },
        member: 0,
        failure: None,
    };
    let mut stack: Vec<u128> = Vec::with_capacity(STACK_BYTES / size_of::<u128>());
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let first = if plan.session == Session::Member { run_leader } else { run };
    // SAFETY: `stack` and `child` outlive the call, because CLONE_VFORK suspends the parent until the child has exec'ed or
    // exited; the stack is aligned, grows down from its end and is ours alone; both functions make system calls only.
    let leader = unsafe {
        let top = stack.as_mut_ptr().add(stack.capacity()).cast::<c_void>();
        libc::clone(first, top, flags, (&raw mut child).cast())
    };
    if leader < 0 {
        return Err(LaunchError::Clone(io::Error::last_os_error()));
    }
    let pid = if plan.session == Session::Member { child.member } else { leader };
    if pid != leader {
        reap(leader);
    }
    let Some((step, errno)) = child.failure else {
        return Ok(Launched { pid: pid as u32, group: leader as u32 });
    };
    if pid > 0 {
        reap(pid);
    }
    let source = io::Error::from_raw_os_error(errno);
    Err(match step {
        Step::Clone => LaunchError::Clone(source),
        Step::Prepare => LaunchError::Prepare(source),
        Step::User => LaunchError::User(source),
        Step::Directory => LaunchError::Directory(source),
        Step::Execute => LaunchError::Execute(source),
    })
}

/// Waits for a child that has ended or is about to.
fn reap(pid: c_int) {
    // SAFETY: a null status pointer is allowed.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
}

/// The leader of a session starts its member, which is a child of the agent like itself, and ends.
extern "C" fn run_leader(argument: *mut c_void) -> c_int {
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PARENT | libc::SIGCHLD;
    // SAFETY: as in `run`; the leader is suspended until the member has exec'ed or exited, and the member has a stack of
    // its own. errno is this thread's, and the suspended parent does not use it meanwhile.
    unsafe {
        let child = &mut *argument.cast::<Child>();
        libc::setsid();
        let stack = child.member_stack;
        child.member = libc::clone(run, stack, flags, argument);
        if child.member < 0 {
            child.failure = Some((Step::Clone, *libc::__errno_location()));
        }
        libc::_exit(0)
    }
}

extern "C" fn run(argument: *mut c_void) -> c_int {
    // SAFETY: `launch` passes a pointer to a `Child` that it keeps alive and does not touch while the child runs.
    let child = unsafe { &mut *argument.cast::<Child>() };
    let step = child.enter_group().and_then(|()| child.prepare());
    let step = step.and_then(|()| child.become_user()).and_then(|()| child.execute());
    if let Err(step) = step {
        // SAFETY: errno is this thread's, and the suspended parent does not use it meanwhile.
        child.failure = Some((step, unsafe { *libc::__errno_location() }));
    }
    // SAFETY: ends the child without running anything of the parent's.
    unsafe { libc::_exit(127) }
}

impl Child {
    /// Enters the control group. This comes before `prepare`, which may replace the descriptor by one of the program's.
    fn enter_group(&self) -> Result<(), Step> {
        let Some(cgroup) = self.cgroup else {
            return Ok(());
        };
        // SAFETY: a system call on a descriptor and a constant that are valid for the child's whole life.
        let written = unsafe { libc::write(cgroup, c"0".as_ptr().cast(), 1) };
        if written < 0 { Err(Step::Prepare) } else { Ok(()) }
    }

    fn prepare(&mut self) -> Result<(), Step> {
        let count = (self.stdio.len() + self.extra.len()) as c_int;
        // SAFETY: system calls on descriptors and constants that are valid for the child's whole life.
        unsafe {
            if self.session != Session::Member {
                libc::setsid();
            }
            // The agent's own descriptors can have any number, also one that the program gets.
            for fd in self.stdio.iter_mut().chain(&mut self.extra).filter(|fd| **fd < count) {
                *fd = libc::fcntl(*fd, libc::F_DUPFD_CLOEXEC, count);
            }
            for (number, fd) in self.stdio.iter().chain(&self.extra).enumerate() {
                if libc::dup2(*fd, number as c_int) < 0 {
                    return Err(Step::Prepare);
                }
            }
            if self.session == Session::LeaderWithTerminal && libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
                return Err(Step::Prepare);
            }
            self.reset_process_settings();
        }
        Ok(())
    }

    /// Resets settings of the agent that a program does not expect. Best effort: the program starts in any case.
    unsafe fn reset_process_settings(&self) {
        // SAFETY: system calls with constants; the signal set is initialised by sigemptyset before it is read.
        unsafe {
            if self.niceness != 0 {
                libc::setpriority(libc::PRIO_PROCESS, 0, self.niceness);
            }
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        }
    }

    fn become_user(&self) -> Result<(), Step> {
        let Some((uid, gid, groups, count)) = self.user else {
            return Ok(());
        };
        // Raw system calls, because glibc's wrappers would change every thread of the parent, whose memory is shared.
        // SAFETY: `groups` points to `count` numbers that outlive the child's use of them.
        let failed = unsafe {
            libc::syscall(libc::SYS_setgroups, count, groups) < 0
                || libc::syscall(libc::SYS_setresgid, gid, gid, gid) < 0
                || libc::syscall(libc::SYS_setresuid, uid, uid, uid) < 0
        };
        if failed { Err(Step::User) } else { Ok(()) }
    }

    fn execute(&self) -> Result<(), Step> {
        // SAFETY: all three arrays end with a null pointer and, like the strings, outlive the calls.
        unsafe {
            if libc::chdir(self.directory) < 0 {
                return Err(Step::Directory);
            }
            let mut denied = false;
            for program in self.programs.iter().take_while(|p| !p.is_null()) {
                libc::execve(*program, self.arguments.as_ptr(), self.environment.as_ptr());
                match *libc::__errno_location() {
                    libc::ENOENT | libc::ENOTDIR => {}
                    libc::EACCES => denied = true,
                    _ => return Err(Step::Execute),
                }
            }
            *libc::__errno_location() = if denied { libc::EACCES } else { libc::ENOENT };
        }
        Err(Step::Execute)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsFd;

    use super::*;

    fn plan<'a>(program: &str, stdio: [BorrowedFd<'a>; 3]) -> Launch<'a> {
        Launch {
            programs: vec![CString::new("/nonexistent/x").unwrap(), CString::new(program).unwrap()],
            arguments: vec![CString::new("x").unwrap()],
            environment: vec![],
            directory: CString::new("/").unwrap(),
            user: None,
            stdio,
            extra: vec![],
            session: Session::Member,
            cgroup: None,
            niceness: 0,
        }
    }

    #[test]
    fn a_missing_program_is_reported_as_not_found() {
        let null = crate::sys::fds::dev_null().unwrap();
        let fd = null.as_fd();
        match launch(&plan("/nonexistent/y", [fd, fd, fd])) {
            Err(LaunchError::Execute(error)) => assert_eq!(error.kind(), io::ErrorKind::NotFound),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_second_path_is_tried_after_the_first() {
        let null = crate::sys::fds::dev_null().unwrap();
        let fd = null.as_fd();
        let Launched { pid, group } = launch(&plan("/bin/true", [fd, fd, fd])).unwrap();
        assert_ne!(pid, group);
        let mut status = 0;
        // SAFETY: waits for our own child; the status pointer is valid.
        assert_eq!(unsafe { libc::waitpid(pid as i32, &mut status, 0) }, pid as i32);
        assert_eq!(status, 0);
    }

    #[test]
    fn a_descriptor_with_a_number_that_the_program_gets_is_not_replaced_before_it_is_passed_on() {
        let null = crate::sys::fds::dev_null().unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        // SAFETY: a test's standard output stays open.
        let stdout = unsafe { BorrowedFd::borrow_raw(1) };
        let mut plan = plan("/bin/readlink", [null.as_fd(), writer.as_fd(), null.as_fd()]);
        plan.arguments = ["readlink", "/proc/self/fd/3"].map(|text| CString::new(text).unwrap()).to_vec();
        plan.extra = vec![stdout];
        let Launched { pid, .. } = launch(&plan).unwrap();
        reap(pid as c_int);
        drop(writer);
        let mut passed_on = String::new();
        reader.read_to_string(&mut passed_on).unwrap();
        assert_eq!(passed_on.trim_end(), std::fs::read_link("/proc/self/fd/1").unwrap().to_str().unwrap());
    }
}
