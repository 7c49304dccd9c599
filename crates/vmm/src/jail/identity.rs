//! The launcher's identity: new namespaces, another user, no capabilities.
//!
//! Root creates the namespaces with its own rights, then becomes the machine's user, then enters a user namespace in
//! which that user has no rights either. An ordinary user creates all of them at once, by means of the user namespace.

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

/// The process's user in its user namespace.
const NOBODY: u32 = 65534;

/// Enters the namespaces in which the file system is built.
pub(super) fn enter_namespaces(uid: Option<u32>) -> Result<(), StepError> {
    if uid.is_some() {
        return unshare(ALL_BUT_USER).step("entering namespaces as root");
    }
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    unshare(ALL_BUT_USER | UnshareFlags::NEWUSER).step("entering a user namespace and the others through it")?;
    // The kernel lets an ordinary user map a group only after this.
    fs::write("/proc/self/setgroups", "deny").step("giving up setgroups")?;
    fs::write("/proc/self/uid_map", format!("{NOBODY} {user} 1")).step("mapping the user")?;
    fs::write("/proc/self/gid_map", format!("{NOBODY} {group} 1")).step("mapping the group")
}

/// Becomes the machine's user and drops all privileges.
pub(super) fn drop_privileges(uid: Option<u32>, user_namespace: Requirement) -> Result<(), StepError> {
    if let Some(uid) = uid {
        become_user(uid).step("becoming the machine's user")?;
        // Its ids stay unmapped: inside they are shown as nobody's, and for file access they are unchanged.
        match (unshare(UnshareFlags::NEWUSER), user_namespace) {
            (Err(_), Requirement::IfAvailable) => {}
            (entered, _) => entered.step("entering a user namespace")?,
        }
    }
    drop_capabilities().step("dropping capabilities")?;
    set_no_new_privs(true).step("setting no_new_privs")
}

fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: the launcher has one thread and shares no descriptor table, so no other code is affected.
    Ok(unsafe { unshare_unsafe(flags) }?)
}

fn become_user(uid: u32) -> io::Result<()> {
    let (user, group) = (Uid::from_raw(uid), Gid::from_raw(uid));
    set_thread_groups(&[])?;
    set_thread_res_gid(group, group, group)?;
    set_thread_res_uid(user, user, user)?;
    Ok(())
}

/// Drops the bounding set first, which needs a capability, and then the rest.
fn drop_capabilities() -> io::Result<()> {
    for number in 0..64 {
        // SAFETY: takes two numbers. The kernel refuses a capability that it does not know, or that we may not drop
        // without a user namespace; the boundary reports what is left.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) };
    }
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    Ok(())
}
