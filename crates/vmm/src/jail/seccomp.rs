//! The system calls that the program may make.
//!
//! There are three filters, of which the strictest answer counts:
//!
//! - *Hostile* calls, which QEMU never makes, end the process.
//! - All calls that are not *allowed* fail with EPERM. So a QEMU with another library version gets an error and
//!   survives.
//! - The *answered* filter has its own replies to two calls.
//!
//!
//! The allowed list was measured with `strace -f`: boot, restore and save under TCG and under KVM, and
//! `blockdev-snapshot-sync`, `block_resize` and hotplug. QEMU also tries io_uring and `get_mempolicy`, which are
//! refused, and works without. It cannot create sockets and can only use those that it inherits. Threads may be
//! started, and plain copies of the process made: guest memory is saved from such a copy. None of them can execute
//! anything.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use libc::*;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter, sock_filter,
};

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
    SYS_ioctl,
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

/// Installs the other two filters. After this, only [`EXEC_FD`] can be executed.
pub(super) fn install_final() -> Result<(), seccompiler::Error> {
    apply_filter(&compile(hostile()?, SeccompAction::KillProcess, SeccompAction::Allow)?)?;
    apply_filter(&compile(allowed()?, SeccompAction::Allow, SeccompAction::Errno(EPERM as u32))?)?;
    Ok(())
}

/// Installs the supervisor's filter: no hostile calls, and no exec.
pub(super) fn install_for_supervisor() -> Result<(), seccompiler::Error> {
    let mut rules = hostile()?;
    rules.insert(SYS_execveat, Vec::new());
    apply_filter(&compile(rules, SeccompAction::KillProcess, SeccompAction::Allow)?)?;
    Ok(())
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

fn allowed() -> Result<Rules, seccompiler::Error> {
    let mut rules: Rules = ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
    rules.insert(SYS_clone, clone_rules()?);
    rules.insert(SYS_prctl, prctl_rules()?);
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

fn prctl_rules() -> Result<Vec<SeccompRule>, seccompiler::Error> {
    [PR_SET_NAME, PR_SET_TIMERSLACK, PR_MCE_KILL]
        .into_iter()
        .map(|option| {
            let condition = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, option as u64)?;
            Ok(SeccompRule::new(vec![condition])?)
        })
        .collect()
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

    #[test]
    fn the_filters_compile() {
        compile(hostile().unwrap(), SeccompAction::KillProcess, SeccompAction::Allow).unwrap();
        compile(allowed().unwrap(), SeccompAction::Allow, SeccompAction::Errno(1)).unwrap();
    }
}
