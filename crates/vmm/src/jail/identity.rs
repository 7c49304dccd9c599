//! The launcher's identity: new namespaces, another user, no capabilities.
//!
//! Root creates the namespaces with its own rights, then becomes the machine's user, then enters a user namespace in
//! which that user has no rights either. Any other user creates all of them at once, by means of the user namespace. If
//! the machine has a user of its own there, the caller is that namespace's root: the kernel then lets the caller read
//! the memory of a program that is not dumpable (`preload/context.rs`), and nothing in the jail can become root.

use std::fs;
use std::io::{self, Read, Write};
use std::process::{Child, Command, Stdio};

use rustix::process::{Gid, Pid, Uid, WaitOptions, getgid, getuid, waitpid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, UnshareFlags, set_capabilities, set_no_new_privs, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid, unshare_unsafe,
};

use super::config::Requirement;
use super::spec::{Spec, Step, StepError};
use super::users::{MachineUser, MapTools, OwnUser};
use crate::plan::OWN_USER;

const ALL_BUT_USER: UnshareFlags = UnshareFlags::NEWNS
    .union(UnshareFlags::NEWPID)
    .union(UnshareFlags::NEWNET)
    .union(UnshareFlags::NEWIPC)
    .union(UnshareFlags::NEWUTS)
    .union(UnshareFlags::NEWCGROUP);
const ALL: UnshareFlags = ALL_BUT_USER.union(UnshareFlags::NEWUSER);

/// The caller's user in the user namespace of a machine that has no user of its own.
const NOBODY: u32 = 65534;

/// Enters the namespaces in which the file system is built, and returns as which user the machine can run. The next child
/// is the first process of the pid namespace.
pub(super) fn enter_namespaces(user: MachineUser) -> Result<MachineUser, StepError> {
    const UNSHARE: &str = "entering a user namespace and the others through it";
    let caller = (getuid(), getgid());
    match user {
        MachineUser::OfRoot(_) => unshare(ALL_BUT_USER).step("entering namespaces as root").map(|()| user),
        MachineUser::Subordinate(own, tools) => {
            let mapper = Mapper::start(caller, &own, &tools).step("starting newuidmap and newgidmap")?;
            unshare(ALL).step(UNSHARE)?;
            match mapper.map().step("mapping the machine's own user with newuidmap and newgidmap")? {
                Mapped::Both => Ok(MachineUser::Subordinate(own, tools)),
                // Some containers do not let them gain their privilege.
                Mapped::Neither => map_caller(caller).map(|()| MachineUser::Caller),
            }
        }
        MachineUser::Caller => {
            unshare(ALL).step(UNSHARE)?;
            map_caller(caller).map(|()| user)
        }
    }
}

/// Makes the next child the first process of another pid namespace, inside of this process's own.
pub(super) fn nest_pid_namespace() -> io::Result<()> {
    unshare(UnshareFlags::NEWPID)
}

fn map_caller((user, group): (Uid, Gid)) -> Result<(), StepError> {
    // The kernel lets an ordinary user map a group only after this.
    fs::write("/proc/self/setgroups", "deny").step("giving up setgroups")?;
    fs::write("/proc/self/uid_map", format!("{NOBODY} {} 1", user.as_raw())).step("mapping the user")?;
    fs::write("/proc/self/gid_map", format!("{NOBODY} {} 1", group.as_raw())).step("mapping the group")
}

/// A child that stays outside of the new user namespace, and lets `newuidmap` and `newgidmap` fill its maps.
struct Mapper {
    pid: Pid,
    go: fs::File,
}

/// What the two programs have mapped: users and groups.
enum Mapped {
    Both,
    Neither,
}

const MAPPED_BOTH: i32 = 0;
const MAPPED_NEITHER: i32 = 1;
const MAPPED_ONE: i32 = 2;

impl Mapper {
    fn start((user, group): (Uid, Gid), own: &OwnUser, tools: &MapTools) -> io::Result<Self> {
        let (wait, go) = io::pipe()?;
        let launcher = std::process::id().to_string();
        // SAFETY: this process has one thread, so the child may run any code.
        let pid = match unsafe { libc::fork() } {
            0 => {
                drop(go);
                let code = await_go(wait).map_or(MAPPED_NEITHER, |()| {
                    let users = spawn(&tools.newuidmap, &launcher, user.as_raw(), own.uid);
                    let groups = spawn(&tools.newgidmap, &launcher, group.as_raw(), own.gid);
                    match [users, groups].map(succeeded) {
                        [true, true] => MAPPED_BOTH,
                        [false, false] => MAPPED_NEITHER,
                        _ => MAPPED_ONE,
                    }
                });
                // SAFETY: ends the process at once, without running the launcher's exit handlers.
                unsafe { libc::_exit(code) }
            }
            pid => Pid::from_raw(pid).filter(|_| pid > 0).ok_or_else(io::Error::last_os_error)?,
        };
        Ok(Self { pid, go: std::os::fd::OwnedFd::from(go).into() })
    }

    /// Lets the child work, and waits for it.
    fn map(mut self) -> io::Result<Mapped> {
        self.go.write_all(b"g")?;
        let ended = waitpid(Some(self.pid), WaitOptions::empty())?;
        match ended.and_then(|(_, status)| status.exit_status()) {
            Some(MAPPED_BOTH) => Ok(Mapped::Both),
            Some(MAPPED_NEITHER) => Ok(Mapped::Neither),
            _ => Err(io::Error::other("only one of the two programs succeeded")),
        }
    }
}

/// Fails if the launcher ends before its namespaces exist.
fn await_go(mut wait: io::PipeReader) -> io::Result<()> {
    wait.read_exact(&mut [0])
}

/// Maps the caller to root, and the machine's own id to [`OWN_USER`].
fn spawn(tool: &std::path::Path, launcher: &str, caller: u32, own: u32) -> io::Result<Child> {
    let (caller, own, inside) = (caller.to_string(), own.to_string(), OWN_USER.to_string());
    Command::new(tool)
        .args([launcher, "0", &caller, "1", &inside, &own, "1"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

fn succeeded(child: io::Result<Child>) -> bool {
    child.and_then(|mut child| child.wait()).is_ok_and(|status| status.success())
}

/// Becomes the machine's user and drops all privileges.
pub(super) fn drop_privileges(user: &MachineUser, spec: &Spec) -> Result<(), StepError> {
    const BECOME: &str = "becoming the machine's user";
    match user {
        MachineUser::OfRoot(own) => {
            set_thread_groups(&[]).step("leaving root's groups")?;
            become_user(own.uid, own.gid).step(BECOME)?;
            // Its ids stay unmapped: inside they are shown as nobody's, and for file access they are unchanged.
            match (unshare(UnshareFlags::NEWUSER), spec.user_namespace) {
                (Err(_), Requirement::IfAvailable) => {}
                (entered, _) => entered.step("entering a user namespace")?,
            }
        }
        MachineUser::Subordinate(..) => {
            // One of the caller's groups may be what opens /dev/kvm.
            if !spec.program.kvm {
                set_thread_groups(&[]).step("leaving the caller's groups")?;
            }
            // Without root's id, this would not be allowed any more.
            drop_bounding_set();
            become_user(OWN_USER, OWN_USER).step(BECOME)?;
        }
        MachineUser::Caller => {}
    }
    drop_bounding_set();
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
        .step("dropping capabilities")?;
    set_no_new_privs(true).step("setting no_new_privs")
}

fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: the launcher has one thread and shares no descriptor table, so no other code is affected.
    Ok(unsafe { unshare_unsafe(flags) }?)
}

fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    let (user, group) = (Uid::from_raw(uid), Gid::from_raw(gid));
    set_thread_res_gid(group, group, group)?;
    set_thread_res_uid(user, user, user)?;
    Ok(())
}

/// Drops the bounding set, which needs a capability.
fn drop_bounding_set() {
    for number in 0..64 {
        // SAFETY: takes two numbers. The kernel refuses a capability that it does not know, or that we may not drop
        // without a user namespace; the boundary reports what is left.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) };
    }
}
