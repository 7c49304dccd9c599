//! Which layers of the jail this host supports, and how to get the missing ones. For `sandling doctor`.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{Access, access};
use rustix::process::geteuid;
use rustix::thread::{UnshareFlags, unshare_unsafe};
use serde::Serialize;

use super::users::{Pool, others_can_open_kvm};
use crate::cgroup::{Cgroup, CgroupLimits, DiskRate};

/// One layer of the jail, and whether this host supports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostLayer {
    pub name: &'static str,
    pub available: bool,
    pub detail: String,
    /// How to get it.
    pub fix: Option<String>,
}

/// Tries every layer, in a child process where the attempt would change this one.
pub fn survey() -> Vec<HostLayer> {
    let mut layers = vec![user_namespace()];
    layers.extend(NAMESPACES.iter().map(|(name, flag)| namespace(name, *flag)));
    layers.extend([own_users(), seccomp(), landlock(), cgroup()]);
    layers
}

const NAMESPACES: [(&str, UnshareFlags); 4] = [
    ("mount namespace", UnshareFlags::NEWNS),
    ("network namespace", UnshareFlags::NEWNET),
    ("pid namespace", UnshareFlags::NEWPID),
    ("ipc namespace", UnshareFlags::NEWIPC),
];

fn layer(name: &'static str, result: Result<String, String>, fix: impl FnOnce() -> String) -> HostLayer {
    match result {
        Ok(detail) => HostLayer { name, available: true, detail, fix: None },
        Err(detail) => HostLayer { name, available: false, detail, fix: Some(fix()) },
    }
}

fn user_namespace() -> HostLayer {
    layer("user namespace", try_unshare(UnshareFlags::NEWUSER), || {
        let knobs = [
            ("kernel.unprivileged_userns_clone", "0", "1"),
            ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
            ("user.max_user_namespaces", "0", "10000"),
        ];
        let wrong = knobs.iter().find(|(name, wrong, _)| sysctl(name).is_some_and(|value| value == *wrong));
        match wrong {
            Some((name, _, right)) => format!("sudo sysctl -w {name}={right}"),
            None => "allow unprivileged user namespaces (in a container: a seccomp profile with unshare)".to_owned(),
        }
    })
}

fn namespace(name: &'static str, flag: UnshareFlags) -> HostLayer {
    let flags = if geteuid().is_root() { flag } else { flag | UnshareFlags::NEWUSER };
    layer(name, try_unshare(flags), || "needs root with CAP_SYS_ADMIN, or user namespaces".to_owned())
}

fn sysctl(name: &str) -> Option<String> {
    let path = format!("/proc/sys/{}", name.replace('.', "/"));
    fs::read_to_string(path).ok().map(|value| value.trim().to_owned())
}

/// Tries in a child, because the namespace cannot be left again.
fn try_unshare(flags: UnshareFlags) -> Result<String, String> {
    let mut child = Command::new("true");
    child.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: one system call between fork and exec; no allocation, no lock.
    unsafe { child.pre_exec(move || Ok(unshare_unsafe(flags)?)) };
    match child.status() {
        Ok(_) => Ok("works".to_owned()),
        Err(error) => Err(format!("refused: {error}")),
    }
}

fn own_users() -> HostLayer {
    if geteuid().is_root() {
        return layer(
            "own users",
            Ok(format!("every machine has one of {} user ids", Pool::of_root().len())),
            String::new,
        );
    }
    let result = match Pool::of_this_user() {
        Ok(_) if access("/dev/kvm", Access::READ_OK | Access::WRITE_OK).is_ok() && !others_can_open_kvm() => {
            Err("machines with KVM run as this user: their own users could not open /dev/kvm".to_owned())
        }
        Ok((pool, _)) => Ok(format!("every machine has one of {} user ids of /etc/subuid", pool.len())),
        Err(reason) => Err(format!("all machines run as this user: {reason}")),
    };
    layer("own users", result, || {
        "install the package uidmap and run: sudo usermod --add-subuids 200000-265535 --add-subgids 200000-265535 \
         --append --groups kvm USER (optional)"
            .to_owned()
    })
}

fn seccomp() -> HostLayer {
    let action = libc::SECCOMP_RET_USER_NOTIF;
    // SAFETY: the kernel reads one number from a live variable.
    let answer = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action) };
    let result = if answer == 0 { Ok("works, with a supervisor".to_owned()) } else { Err("not available".to_owned()) };
    layer("seccomp", result, || "needs Linux 5.14 or newer with CONFIG_SECCOMP_FILTER".to_owned())
}

fn landlock() -> HostLayer {
    const ASK_FOR_VERSION: u32 = 1;
    // SAFETY: with this flag the kernel takes no structure and answers with a number.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0usize, ASK_FOR_VERSION) };
    let result = if version > 0 { Ok(format!("ABI {version}")) } else { Err("not enabled".to_owned()) };
    layer("landlock", result, || "boot Linux 5.13 or newer with landlock in its lsm= list (optional)".to_owned())
}

/// What control groups cannot limit for machines in this directory.
pub fn unlimited(directory: &Path) -> Vec<&'static str> {
    Cgroup::create_probe(&every_limit(), directory).map_or_else(|_| vec!["anything"], |(_, missing)| missing)
}

fn every_limit() -> CgroupLimits {
    let disk = DiskRate { bytes_per_second: Some(1 << 40), requests_per_second: Some(1 << 30) };
    let (memory_bytes, swap_bytes) = (Some(1 << 40), Some(1 << 40));
    CgroupLimits { memory_bytes, swap_bytes, cpu_milli: Some(1000), tasks: Some(1000), disk }
}

fn cgroup() -> HostLayer {
    let here = std::env::current_dir().unwrap_or_else(|_| "/".into());
    let result = match Cgroup::create_probe(&every_limit(), &here) {
        Ok((Some(group), missing)) => {
            let limited = format!("version {:?}: {}", group.version, group.controllers.join(", "));
            Ok(if missing.is_empty() { limited } else { format!("{limited}; not limited: {}", missing.join(", ")) })
        }
        Ok((None, _)) => Err("this user cannot create a group, so nothing is limited per machine".to_owned()),
        Err(error) => Err(error.to_string()),
    };
    layer("cgroup", result, || "run under systemd with Delegate=yes, or as root (optional)".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layer_is_named_once_and_a_missing_one_comes_with_a_fix() {
        let layers = survey();
        let mut names: Vec<_> = layers.iter().map(|layer| layer.name).collect();
        names.dedup();
        assert_eq!(names.len(), 9);
        for layer in layers {
            assert_eq!(layer.available, layer.fix.is_none(), "{layer:?}");
        }
    }
}
