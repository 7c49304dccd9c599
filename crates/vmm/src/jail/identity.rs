//! Who the launcher is: new namespaces, another user, no capabilities.
//!
//! Root makes the namespaces with its own rights, then becomes the machine's user, then enters a user namespace in
//! which that user has nothing either. An ordinary user makes all of them at once, by way of the user namespace.

use std::fs;
use std::io;

use rustix::process::{Gid, Uid, getgid, getuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, UnshareFlags, set_capabilities, set_no_new_privs, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid, unshare_unsafe,
};

use super::config::Requirement;
use super::spec::{Step, StepError};

const ALL_BUT_USER: UnshareFlags = UnshareFlags::NEWNS
    .union(UnshareFlags::NEWPID)
    .union(UnshareFlags::NEWNET)
    .union(UnshareFlags::NEWIPC)
    .union(UnshareFlags::NEWUTS)
    .union(UnshareFlags::NEWCGROUP);

/// What the process is inside its user namespace: nobody.
const NOBODY: u32 = 65534;

/// Enters every namespace that has to be there before the file system can be built.
pub(super) fn enter_namespaces(uid: Option<u32>) -> Result<(), StepError> {
    if uid.is_some() {
        return unshare(ALL_BUT_USER).step("entering namespaces as root");
    }
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    unshare(ALL_BUT_USER | UnshareFlags::NEWUSER).step("entering a user namespace and the others through it")?;
    // Without this the kernel does not let an ordinary user map a group.
    fs::write("/proc/self/setgroups", "deny").step("giving up setgroups")?;
    fs::write("/proc/self/uid_map", format!("{NOBODY} {user} 1")).step("mapping the user")?;
    fs::write("/proc/self/gid_map", format!("{NOBODY} {group} 1")).step("mapping the group")
}

/// Becomes the machine's user and gives up everything that could be given up.
pub(super) fn drop_privileges(uid: Option<u32>, user_namespace: Requirement) -> Result<(), StepError> {
    if let Some(uid) = uid {
        become_user(uid).step("becoming the machine's user")?;
        // Its ids stay unmapped: inside they read as nobody, and for files they are what they were.
        match (unshare(UnshareFlags::NEWUSER), user_namespace) {
            (Err(_), Requirement::IfAvailable) => {}
            (entered, _) => entered.step("entering a user namespace")?,
        }
    }
    drop_capabilities().step("dropping capabilities")?;
    set_no_new_privs(true).step("setting no_new_privs")
}

fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: the launcher has one thread and shares no descriptor table, so nothing else is surprised.
    Ok(unsafe { unshare_unsafe(flags) }?)
}

fn become_user(uid: u32) -> io::Result<()> {
    let (user, group) = (Uid::from_raw(uid), Gid::from_raw(uid));
    set_thread_groups(&[])?;
    set_thread_res_gid(group, group, group)?;
    set_thread_res_uid(user, user, user)?;
    Ok(())
}

/// The bounding set first, as long as the user namespace still lets us; then the rest.
fn drop_capabilities() -> io::Result<()> {
    for number in 0..64 {
        // SAFETY: takes two numbers. One that this kernel does not know, or that we may not drop for want of a user
        // namespace, is refused; what is left then shows in the boundary.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) };
    }
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    Ok(())
}
