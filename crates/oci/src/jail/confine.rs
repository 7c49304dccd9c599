//! The steps with which the process gives up everything that it does not need.

use std::fs;
use std::io;
use std::os::fd::RawFd;
use std::process::ExitCode;

use landlock::{ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetError, RulesetStatus, Scope};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount};
use rustix::process::{
    Gid, Resource, Rlimit, Uid, chdir, getgid, getrlimit, getuid, pivot_root, set_parent_process_death_signal,
    setrlimit,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, UnshareFlags, set_capabilities, set_no_new_privs, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid, unshare_unsafe,
};

use super::filter;

const ALL_BUT_USER: UnshareFlags = UnshareFlags::NEWNS
    .union(UnshareFlags::NEWPID)
    .union(UnshareFlags::NEWNET)
    .union(UnshareFlags::NEWIPC)
    .union(UnshareFlags::NEWUTS)
    .union(UnshareFlags::NEWCGROUP);

const NOBODY: u32 = 65_534;

/// The newest version of Landlock whose rights are given up; an older kernel enforces those that it knows.
const LANDLOCK: ABI = ABI::V6;

/// The standard library copies descriptors; this many copies exist at most.
const SPARE_FDS: u64 = 16;

pub(super) struct ResourceLimits {
    pub cpu_seconds: u64,
    pub memory_bytes: u64,
    pub file_bytes: u64,
}

/// How [`enter_namespaces`] continues.
pub(super) enum Entered {
    /// In the confined process.
    Inside,
    /// In the process that waited for it.
    Outside(ExitCode),
}

/// Closes every descriptor except the standard streams and those listed.
pub(super) fn close_others(keep: &[RawFd]) -> io::Result<()> {
    let mut keep: Vec<u32> = keep.iter().map(|fd| *fd as u32).collect();
    keep.sort_unstable();
    let mut first = 3;
    for fd in keep.into_iter().chain([u32::MAX]) {
        if first < fd {
            // SAFETY: takes numbers. No descriptor in the range is owned by code that runs after this.
            let closed = unsafe { libc::syscall(libc::SYS_close_range, first, fd - 1, 0) };
            if closed != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        first = fd.saturating_add(1);
    }
    Ok(())
}

/// Enters new namespaces with an empty root directory. Adds to `missing` what the kernel does not allow.
pub(super) fn enter_namespaces(missing: &mut Vec<String>) -> io::Result<Entered> {
    let is_root = getuid().is_root();
    let entered = match is_root {
        true => unshare(ALL_BUT_USER),
        false => enter_as_user(),
    };
    if let Err(error) = entered {
        missing.push(format!("new namespaces: {error}"));
        return Ok(Entered::Inside);
    }
    if let Err(error) = enter_empty_root() {
        missing.push(format!("an empty root directory: {error}"));
    }
    // The new process is the first one of its process namespace.
    // SAFETY: this process has one thread, so the copy is complete.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Entered::Inside),
        child => wait_for(child).map(Entered::Outside),
    }
}

fn enter_as_user() -> io::Result<()> {
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    unshare(ALL_BUT_USER | UnshareFlags::NEWUSER)?;
    // The kernel lets an ordinary user map a group only after this.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{NOBODY} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{NOBODY} {group} 1"))
}

fn enter_empty_root() -> io::Result<()> {
    // Any directory that always exists; it is hidden, and then gone.
    const PLACE: &str = "/proc";
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RDONLY;
    mount("none", PLACE, "tmpfs", flags, c"size=4k,mode=555")?;
    chdir(PLACE)?;
    pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    Ok(chdir("/")?)
}

/// Returns the child's exit code as a shell would.
fn wait_for(child: libc::pid_t) -> io::Result<ExitCode> {
    let mut status = 0;
    // SAFETY: the pointer is valid for the call.
    while unsafe { libc::waitpid(child, &raw mut status, 0) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    let code = match libc::WIFSIGNALED(status) {
        true => 128 + libc::WTERMSIG(status),
        false => libc::WEXITSTATUS(status),
    };
    Ok(ExitCode::from(code as u8))
}

fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: this process has one thread and shares no descriptor table, so no other code is affected.
    Ok(unsafe { unshare_unsafe(flags) }?)
}

/// Gives up the user, all capabilities, and the right to get any back.
pub(super) fn drop_privileges(missing: &mut Vec<String>) -> io::Result<()> {
    if getuid().is_root() {
        let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
        set_thread_groups(&[])?;
        set_thread_res_gid(group, group, group)?;
        set_thread_res_uid(user, user, user)?;
        if let Err(error) = unshare(UnshareFlags::NEWUSER) {
            missing.push(format!("a user namespace: {error}"));
        }
    }
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    set_no_new_privs(true)?;
    // A change of the user resets this, so it comes last.
    set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    Ok(())
}

pub(super) fn limit_resources(limits: &ResourceLimits, highest_fd: RawFd) -> io::Result<()> {
    set_limit(Resource::Core, 0)?;
    set_limit(Resource::As, limits.memory_bytes)?;
    set_limit(Resource::Cpu, limits.cpu_seconds)?;
    set_limit(Resource::Fsize, limits.file_bytes)?;
    set_limit(Resource::Nproc, 0)?;
    set_limit(Resource::Nofile, highest_fd as u64 + SPARE_FDS)
}

fn set_limit(resource: Resource, wanted: u64) -> io::Result<()> {
    let wanted = getrlimit(resource).maximum.map_or(wanted, |maximum| maximum.min(wanted));
    Ok(setrlimit(resource, Rlimit { current: Some(wanted), maximum: Some(wanted) })?)
}

/// Gives up access to all files, to the network, and to other processes.
pub(super) fn deny_files(missing: &mut Vec<String>) -> Result<(), RulesetError> {
    let ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(LANDLOCK))?
        .handle_access(AccessNet::from_all(LANDLOCK))?
        .scope(Scope::from_all(LANDLOCK))?
        .create()?;
    match ruleset.restrict_self()?.ruleset {
        RulesetStatus::FullyEnforced => (),
        RulesetStatus::PartiallyEnforced => missing.push("a part of Landlock: the kernel is too old".to_owned()),
        RulesetStatus::NotEnforced => missing.push("Landlock: the kernel does not have it".to_owned()),
    }
    Ok(())
}

pub(super) fn deny_system_calls() -> io::Result<()> {
    filter::install().map_err(io::Error::other)
}
