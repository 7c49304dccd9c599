//! The system calls that no installation needs and that reach much of the kernel. They fail with EPERM.

use std::collections::BTreeMap;

use libc::*;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter,
};

#[rustfmt::skip] // by the dozen; one to a line would be longer than the rest of the file
const DENIED: &[i64] = &[
    SYS_acct, SYS_add_key, SYS_bpf, SYS_delete_module, SYS_fanotify_init, SYS_finit_module, SYS_fsopen,
    SYS_init_module, SYS_io_uring_enter, SYS_io_uring_register, SYS_io_uring_setup, SYS_ioperm, SYS_iopl,
    SYS_kexec_file_load, SYS_kexec_load, SYS_keyctl, SYS_lookup_dcookie, SYS_mbind, SYS_migrate_pages, SYS_move_pages,
    SYS_name_to_handle_at, SYS_nfsservctl, SYS_open_by_handle_at, SYS_perf_event_open, SYS_process_vm_readv,
    SYS_process_vm_writev, SYS_ptrace, SYS_quotactl, SYS_reboot, SYS_request_key, SYS_setns, SYS_settimeofday,
    SYS_swapoff, SYS_swapon, SYS_syslog, SYS_userfaultfd, SYS_vhangup,
];

/// Other sockets reach parts of the kernel, or of the host, that a network namespace does not separate.
const SOCKETS: [i32; 4] = [AF_UNIX, AF_INET, AF_INET6, AF_NETLINK];

/// Denies them to this process and its children.
pub(super) fn install() -> Result<(), seccompiler::Error> {
    let other_socket = SOCKETS
        .iter()
        .map(|family| SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, *family as u64));
    let other_socket = SeccompRule::new(other_socket.collect::<Result<_, _>>()?)?;
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = DENIED.iter().map(|call| (*call, Vec::new())).collect();
    rules.insert(SYS_socket, vec![other_socket]);
    let denied = SeccompAction::Errno(EPERM as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, denied, TargetArch::x86_64)?;
    apply_filter(&BpfProgram::try_from(filter)?)
}
