//! The system calls that the program may make.
//!
//! The program has three filters, of which the strictest answer counts:
//!
//! - *Hostile* calls, which QEMU never makes, end the process.
//! - All calls that are not *allowed* fail with EPERM. So a QEMU with another library version gets an error and
//!   survives.
//! - The *answered* filter has its own replies to two calls.
//!
//! The allowed list was measured with `strace -f`: boot, restore and save under TCG and under KVM, and
//! `blockdev-snapshot-sync`, `block_resize` and hotplug. QEMU also tries io_uring and `get_mempolicy`, which are
//! refused, and works without. `ioctl` is allowed by request (`ioctl.rs`), for programs that get `/dev/kvm` only, and
//! also in the processes that are resumed from the process cache. QEMU cannot create sockets and can only use those that it inherits. Threads may be
//! started, and plain copies of the process made: guest memory is saved from such a copy. None of them can execute
//! anything.
//!
//! The supervisor has filters of its own, with a shorter list.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use libc::*;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter, sock_filter,
};

use super::ioctl;
use super::program::EXEC_FD;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

#[rustfmt::skip] // by the dozen; one to a line would be longer than the rest of the file
const ALLOWED: &[i64] = &[
    // files and descriptors
    SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_pread64, SYS_pwrite64, SYS_preadv, SYS_pwritev, SYS_preadv2,
    SYS_pwritev2, SYS_openat, SYS_close, SYS_fstat, SYS_newfstatat, SYS_stat, SYS_lstat, SYS_statx, SYS_statfs,
    SYS_fstatfs, SYS_lseek, SYS_fcntl, SYS_flock, SYS_fadvise64, SYS_fallocate, SYS_ftruncate, SYS_fsync,
    SYS_fdatasync, SYS_sync_file_range, SYS_unlink, SYS_unlinkat, SYS_readlink, SYS_readlinkat, SYS_access,
    SYS_faccessat, SYS_faccessat2, SYS_getdents64, SYS_getcwd, SYS_fchdir, SYS_dup, SYS_dup2, SYS_dup3, SYS_pipe2,
    // memory
    SYS_mmap, SYS_munmap, SYS_mprotect, SYS_mremap, SYS_madvise, SYS_brk, SYS_memfd_create, SYS_membarrier,
    // threads, signals, time
    SYS_futex, SYS_set_robust_list, SYS_rseq, SYS_set_tid_address, SYS_arch_prctl, SYS_gettid, SYS_getpid,
    SYS_sched_getaffinity, SYS_sched_yield, SYS_getcpu, SYS_tgkill, SYS_rt_sigaction, SYS_rt_sigprocmask,
    SYS_rt_sigreturn, SYS_rt_sigtimedwait, SYS_rt_sigpending, SYS_sigaltstack, SYS_signalfd4, SYS_restart_syscall,
    SYS_nanosleep, SYS_clock_nanosleep, SYS_clock_gettime, SYS_clock_getres, SYS_gettimeofday, SYS_time,
    SYS_timer_create, SYS_timer_settime, SYS_timer_gettime, SYS_timer_delete, SYS_timerfd_create,
    SYS_timerfd_settime, SYS_exit, SYS_exit_group, SYS_wait4,
    // waiting
    SYS_poll, SYS_ppoll, SYS_select, SYS_pselect6, SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_wait,
    SYS_epoll_pwait, SYS_epoll_pwait2, SYS_eventfd2,
    // inherited sockets
    SYS_accept4, SYS_listen, SYS_getsockname, SYS_getpeername, SYS_getsockopt, SYS_setsockopt, SYS_sendmsg,
    SYS_recvmsg, SYS_sendto, SYS_recvfrom, SYS_shutdown,
    // harmless information about the host
    SYS_uname, SYS_sysinfo, SYS_getrandom, SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid,
    // answered by its own filter
    SYS_clone3,
];

/// What the supervisor needs from the moment the program runs. It can name no other process: it signals the program by
/// the handle that it has, and cannot open another.
#[rustfmt::skip]
const SUPERVISOR: &[i64] = &[
    // its logs, its report, the deadline, the program's output, the caller
    SYS_read, SYS_write, SYS_openat, SYS_open, SYS_close, SYS_fstat, SYS_newfstatat, SYS_statx, SYS_lseek, SYS_fcntl,
    SYS_dup2, SYS_dup3, SYS_renameat, SYS_renameat2, SYS_poll, SYS_ppoll, SYS_accept4, SYS_sendmsg,
    // the program
    SYS_waitid, SYS_pidfd_send_signal, SYS_process_vm_readv,
    // the last restriction of itself
    SYS_landlock_restrict_self,
    // the Rust and C libraries
    SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_madvise, SYS_brk, SYS_futex, SYS_clock_gettime, SYS_gettimeofday,
    SYS_getrandom, SYS_sigaltstack, SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_restart_syscall,
    SYS_gettid, SYS_getpid, SYS_tgkill, SYS_sched_yield, SYS_exit, SYS_exit_group, SYS_writev,
];

#[rustfmt::skip]
const HOSTILE: &[i64] = &[
    SYS_execve, SYS_ptrace, SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_move_mount, SYS_open_tree,
    SYS_fsopen, SYS_fsmount, SYS_mount_setattr, SYS_unshare, SYS_setns, SYS_bpf, SYS_perf_event_open, SYS_keyctl,
    SYS_add_key, SYS_request_key, SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_kexec_load,
    SYS_kexec_file_load, SYS_reboot, SYS_swapon, SYS_swapoff, SYS_iopl, SYS_ioperm, SYS_userfaultfd,
    SYS_open_by_handle_at, SYS_name_to_handle_at, SYS_mknod, SYS_mknodat, SYS_settimeofday, SYS_clock_settime,
    SYS_adjtimex, SYS_acct, SYS_quotactl, SYS_syslog, SYS_setuid, SYS_setgid, SYS_setreuid, SYS_setregid,
    SYS_setresuid, SYS_setresgid, SYS_setgroups, SYS_capset, SYS_personality, SYS_pidfd_getfd, SYS_kcmp,
];

/// Installs the answered filter; the supervisor reads its questions from the returned descriptor.
///
/// This must come first: the other filters forbid the system call that installs filters.
pub(super) fn install_answered() -> io::Result<OwnedFd> {
    let filter = answered();
    let program = sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut().cast() };
    // SAFETY: the program describes a live vector of instructions, which the kernel copies.
    let listener =
        unsafe { syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &raw const program) };
    if listener < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just created by the kernel, close-on-exec, and not owned by anything else.
    Ok(unsafe { OwnedFd::from_raw_fd(listener as i32) })
}

/// Installs the other two filters, for a program with or without `/dev/kvm`. After this, only [`EXEC_FD`] can be
/// executed.
pub(super) fn install_final(kvm: bool) -> Result<(), seccompiler::Error> {
    apply_filter(&compile(hostile()?, SeccompAction::KillProcess, SeccompAction::Allow)?)?;
    apply_filter(&compile(allowed(kvm)?, SeccompAction::Allow, SeccompAction::Errno(EPERM as u32))?)?;
    Ok(())
}

/// Installs the supervisor's filters: hostile calls and every exec end it, and calls that it does not need fail.
pub(super) fn install_for_supervisor() -> Result<(), seccompiler::Error> {
    supervisor_filters()?.iter().try_for_each(|filter| apply_filter(filter))
}

fn supervisor_filters() -> Result<[BpfProgram; 2], seccompiler::Error> {
    let mut fatal = hostile()?;
    fatal.insert(SYS_execveat, Vec::new());
    let mut needed: Rules = SUPERVISOR.iter().map(|call| (*call, Vec::new())).collect();
    needed.insert(SYS_ioctl, one_of(1, &ioctl::SUPERVISOR)?);
    // Only names a thread, when the program panics.
    needed.insert(SYS_prctl, one_of(0, &[PR_SET_NAME as u32])?);
    Ok([
        compile(fatal, SeccompAction::KillProcess, SeccompAction::Allow)?,
        compile(needed, SeccompAction::Allow, SeccompAction::Errno(EPERM as u32))?,
    ])
}

fn compile(rules: Rules, listed: SeccompAction, other: SeccompAction) -> Result<BpfProgram, seccompiler::Error> {
    Ok(SeccompFilter::new(rules, other, listed, TargetArch::x86_64)?.try_into()?)
}

/// The hostile calls, and every exec except that of [`EXEC_FD`].
fn hostile() -> Result<Rules, seccompiler::Error> {
    let mut rules: Rules = HOSTILE.iter().map(|call| (*call, Vec::new())).collect();
    let other_file = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, EXEC_FD as u64)?;
    let by_path = SeccompCondition::new(4, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, AT_EMPTY_PATH as u64)?;
    rules.insert(SYS_execveat, vec![SeccompRule::new(vec![other_file])?, SeccompRule::new(vec![by_path])?]);
    Ok(rules)
}

fn allowed(kvm: bool) -> Result<Rules, seccompiler::Error> {
    let mut rules: Rules = ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
    rules.insert(SYS_clone, clone_rules()?);
    let mut options = one_of(0, &[PR_SET_NAME as u32, PR_SET_TIMERSLACK as u32, PR_MCE_KILL as u32])?;
    // The process may become undumpable, but not dumpable again.
    let dumpable = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, PR_SET_DUMPABLE as u64)?;
    let not = SeccompCondition::new(1, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0)?;
    options.push(SeccompRule::new(vec![dumpable, not])?);
    rules.insert(SYS_prctl, options);
    if kvm {
        rules.insert(SYS_ioctl, one_of(1, ioctl::KVM)?);
    }
    // Reading a limit, not setting one.
    let no_new_limit = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0)?;
    rules.insert(SYS_prlimit64, vec![SeccompRule::new(vec![no_new_limit])?]);
    rules.insert(SYS_execveat, Vec::new());
    Ok(rules)
}

/// Allows threads, and the plain copy of the process from which its memory is saved, but no new namespace.
fn clone_rules() -> Result<Vec<SeccompRule>, seccompiler::Error> {
    let thread = SeccompCmpOp::MaskedEq(CLONE_THREAD as u64);
    let copy = SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, SIGCHLD as u64)?;
    let thread = SeccompCondition::new(0, SeccompCmpArgLen::Qword, thread, CLONE_THREAD as u64)?;
    Ok(vec![SeccompRule::new(vec![thread])?, SeccompRule::new(vec![copy])?])
}

/// One rule for each value that this argument may have. The kernel takes only its low 32 bits.
fn one_of(argument: u8, values: &[u32]) -> Result<Vec<SeccompRule>, seccompiler::Error> {
    let rule = |value: &u32| {
        let equal = SeccompCmpOp::Eq;
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, equal, u64::from(*value))?;
        Ok(SeccompRule::new(vec![condition])?)
    };
    values.iter().map(rule).collect()
}

/// `clone3` returns ENOSYS, so that libraries use `clone`, whose flags a filter can see. `openat` with the bare flag
/// O_RDWR is forwarded to the supervisor. Written by hand, because seccompiler cannot forward calls.
fn answered() -> Vec<sock_filter> {
    const ARCH: u32 = 4;
    const NUMBER: u32 = 0;
    const OPENAT_FLAGS: u32 = 16 + 2 * 8;
    const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
    let load = |offset| instruction(BPF_LD | BPF_W | BPF_ABS, 0, 0, offset);
    let skip_unless = |value, distance| instruction(BPF_JMP | BPF_JEQ | BPF_K, 0, distance, value);
    let answer = |value| instruction(BPF_RET | BPF_K, 0, 0, value);
    vec![
        load(ARCH),
        skip_unless(AUDIT_ARCH_X86_64, 7),
        load(NUMBER),
        skip_unless(SYS_clone3 as u32, 1),
        answer(SECCOMP_RET_ERRNO | ENOSYS as u32),
        skip_unless(SYS_openat as u32, 3),
        load(OPENAT_FLAGS),
        skip_unless(O_RDWR as u32, 1),
        answer(SECCOMP_RET_USER_NOTIF),
        answer(SECCOMP_RET_ALLOW),
    ]
}

fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_is_both_allowed_and_hostile() {
        let both: Vec<_> = ALLOWED.iter().filter(|call| HOSTILE.contains(call)).collect();
        assert!(both.is_empty(), "{both:?}");
    }

    /// Makes one system call in a child with the supervisor's filters. The error number, or 0; or the signal that ended
    /// the child, negated.
    fn as_supervisor(call: i64, arguments: [i64; 3]) -> i32 {
        let filters = supervisor_filters().unwrap();
        let [a, b, c] = arguments;
        // SAFETY: between fork and exit the child only makes system calls.
        match unsafe { fork() } {
            // SAFETY: these calls take only numbers, and the child ends with the last of them.
            0 => unsafe {
                prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
                if filters.iter().any(|filter| apply_filter(filter).is_err()) {
                    _exit(255);
                }
                let answer = syscall(call, a, b, c, 0, 0, 0);
                _exit(if answer < 0 { *__errno_location() } else { 0 })
            },
            child => {
                let mut status = 0;
                // SAFETY: waits for a child of this process.
                assert_eq!(unsafe { waitpid(child, &raw mut status, 0) }, child);
                if WIFSIGNALED(status) { -WTERMSIG(status) } else { WEXITSTATUS(status) }
            }
        }
    }

    #[test]
    fn the_supervisor_can_do_what_it_needs_and_nothing_else() {
        assert_eq!(as_supervisor(SYS_getpid, [0; 3]), 0);
        assert_eq!(as_supervisor(SYS_close, [-1, 0, 0]), EBADF, "allowed, and the kernel's own answer");
        let received = i64::from(ioctl::SUPERVISOR[0]);
        assert_eq!(as_supervisor(SYS_ioctl, [-1, received, 0]), EBADF);
        let refused = [SYS_socket, SYS_connect, SYS_kill, SYS_pidfd_open, SYS_process_vm_writev, SYS_clone, SYS_unlink];
        for call in refused {
            assert_eq!(as_supervisor(call, [0; 3]), EPERM, "call {call}");
        }
        assert_eq!(as_supervisor(SYS_ioctl, [0, TIOCSTI as i64, 0]), EPERM);
        for call in [SYS_execve, SYS_execveat, SYS_ptrace, SYS_setuid, SYS_mount, SYS_unshare] {
            assert_eq!(as_supervisor(call, [0; 3]), -SIGSYS, "call {call}");
        }
    }

    #[test]
    fn the_filters_compile() {
        compile(hostile().unwrap(), SeccompAction::KillProcess, SeccompAction::Allow).unwrap();
        for kvm in [false, true] {
            compile(allowed(kvm).unwrap(), SeccompAction::Allow, SeccompAction::Errno(1)).unwrap();
        }
    }
}
