//! The system calls that unpacking needs. All others fail with EPERM.
//!
//! Signal handlers are among them: a process that runs out of memory aborts, and the standard library's own handler must
//! be able to remove itself then.

use std::collections::BTreeMap;

use libc::*;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter,
};

#[rustfmt::skip] // by the dozen; one to a line would be longer than the rest of the file
const ALLOWED: &[i64] = &[
    SYS_read, SYS_readv, SYS_pread64, SYS_write, SYS_writev, SYS_pwrite64, SYS_lseek, SYS_fstat, SYS_close,
    SYS_fallocate, SYS_ftruncate, SYS_munmap, SYS_mremap, SYS_madvise, SYS_brk, SYS_futex, SYS_sched_yield,
    SYS_clock_gettime, SYS_getrandom, SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_sigaltstack, SYS_restart_syscall,
    SYS_exit, SYS_exit_group,
];

pub(super) fn install() -> Result<(), seccompiler::Error> {
    apply_filter(&compile()?)
}

fn compile() -> Result<BpfProgram, seccompiler::Error> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
    let argument = |index, operator, value: i32| -> Result<SeccompRule, seccompiler::Error> {
        let condition = SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, value as u64)?;
        Ok(SeccompRule::new(vec![condition])?)
    };
    // Memory never becomes executable.
    let not_executable = SeccompCmpOp::MaskedEq(PROT_EXEC as u64);
    rules.insert(SYS_mmap, vec![argument(2, not_executable.clone(), 0)?]);
    rules.insert(SYS_mprotect, vec![argument(2, not_executable, 0)?]);
    // Copies of descriptors, and the check that the standard library makes before it closes one.
    let commands = [F_DUPFD_CLOEXEC, F_GETFD];
    let fcntl = commands.map(|command| argument(1, SeccompCmpOp::Eq, command));
    rules.insert(SYS_fcntl, fcntl.into_iter().collect::<Result<_, _>>()?);
    let refused = SeccompAction::Errno(EPERM as u32);
    Ok(SeccompFilter::new(rules, refused, SeccompAction::Allow, TargetArch::x86_64)?.try_into()?)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_filter_compiles() {
        super::compile().unwrap();
    }
}
