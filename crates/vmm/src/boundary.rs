//! The boundary: the layers between a guest and the host, as observed on the running process rather than as configured.

use std::collections::HashMap;
use std::fs;
use std::io;

use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use crate::accelerator::Accelerator;
use crate::cgroup::Cgroup;
pub use crate::cgroup::{CgroupLimits, CgroupVersion, DiskRate};
use crate::jail::{Landlock, Requirement};

/// The control group that limits a machine, and its controllers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupBoundary {
    pub version: CgroupVersion,
    pub controllers: Vec<String>,
}

/// The layers around one machine. A field is true only if the layer was observed in effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boundary {
    pub accelerator: Accelerator,
    pub user_namespace: bool,
    pub mount_namespace: bool,
    pub network_namespace: bool,
    pub pid_namespace: bool,
    pub ipc_namespace: bool,
    pub unprivileged_user: bool,
    /// Whether QEMU has a user id of its own, which is neither the engine's nor another machine's. Machines that
    /// earlier versions started do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_user: Option<bool>,
    pub no_capabilities: bool,
    pub no_new_privs: bool,
    pub seccomp: bool,
    pub landlock: Landlock,
    pub cgroup: Option<CgroupBoundary>,
}

impl Boundary {
    /// Observes a running program from outside.
    pub(crate) fn observe(
        pid: i32,
        accelerator: Accelerator,
        landlock: Landlock,
        cgroup: Option<&Cgroup>,
    ) -> io::Result<Self> {
        let status = Status::read(pid)?;
        let separate = |kind| is_separate(pid, kind);
        Ok(Self {
            accelerator,
            user_namespace: separate("user")?,
            mount_namespace: separate("mnt")?,
            network_namespace: separate("net")?,
            pid_namespace: separate("pid")?,
            ipc_namespace: separate("ipc")?,
            unprivileged_user: status.is_unprivileged(),
            own_user: Some(status.user().is_some_and(|user| user != geteuid().as_raw())),
            no_capabilities: status.has_no_capabilities(),
            no_new_privs: status.is("NoNewPrivs", "1"),
            seccomp: status.is("Seccomp", "2"),
            landlock,
            cgroup: cgroup
                .filter(|cgroup| is_member(pid, cgroup))
                .map(|cgroup| CgroupBoundary { version: cgroup.version, controllers: cgroup.controllers.clone() }),
        })
    }

    /// The required layers that are missing. Landlock and control groups are optional.
    pub fn missing(&self, user_namespace: Requirement) -> Vec<&'static str> {
        let layers = [
            ("user namespace", self.user_namespace || user_namespace == Requirement::IfAvailable),
            ("mount namespace", self.mount_namespace),
            ("network namespace", self.network_namespace),
            ("pid namespace", self.pid_namespace),
            ("ipc namespace", self.ipc_namespace),
            ("unprivileged user", self.unprivileged_user),
            ("no capabilities", self.no_capabilities),
            ("no_new_privs", self.no_new_privs),
            ("seccomp", self.seccomp),
        ];
        layers.into_iter().filter(|(_, present)| !present).map(|(name, _)| name).collect()
    }
}

fn is_separate(pid: i32, kind: &str) -> io::Result<bool> {
    let theirs = fs::read_link(format!("/proc/{pid}/ns/{kind}"))?;
    Ok(theirs != fs::read_link(format!("/proc/self/ns/{kind}"))?)
}

fn is_member(pid: i32, cgroup: &Cgroup) -> bool {
    let lists = cgroup.directories.iter().map(|directory| fs::read_to_string(directory.join("cgroup.procs")));
    lists.into_iter().all(|list| list.is_ok_and(|list| list.lines().any(|line| line == pid.to_string())))
}

/// `/proc/PID/status`.
struct Status(HashMap<String, String>);

impl Status {
    fn read(pid: i32) -> io::Result<Self> {
        Ok(Self::parse(&fs::read_to_string(format!("/proc/{pid}/status"))?))
    }

    fn parse(text: &str) -> Self {
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        Self(lines.map(|(key, value)| (key.to_owned(), value.trim().to_owned())).collect())
    }

    fn is(&self, key: &str, value: &str) -> bool {
        self.0.get(key).is_some_and(|have| have == value)
    }

    fn user(&self) -> Option<u32> {
        self.0.get("Uid")?.split_whitespace().next()?.parse().ok()
    }

    fn is_unprivileged(&self) -> bool {
        let none_is_root = |key| {
            let ids = self.0.get(key)?.split_whitespace().map(str::parse::<u32>).collect::<Result<Vec<_>, _>>().ok()?;
            Some(ids.len() == 4 && !ids.contains(&0))
        };
        none_is_root("Uid") == Some(true) && none_is_root("Gid") == Some(true)
    }

    fn has_no_capabilities(&self) -> bool {
        ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"].iter().all(|set| self.is(set, "0000000000000000"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JAILED: &str = "Name:\tqemu\nUid:\t700001\t700001\t700001\t700001\nGid:\t700001\t700001\t700001\t700001\n\
        CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n\
        CapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n";

    #[test]
    fn a_jailed_process_is_recognised_by_its_status() {
        let status = Status::parse(JAILED);
        assert!(status.is_unprivileged() && status.has_no_capabilities());
        assert!(status.is("NoNewPrivs", "1") && status.is("Seccomp", "2"));
    }

    #[test]
    fn one_root_id_or_one_capability_makes_a_process_privileged() {
        assert!(!Status::parse(&JAILED.replace("Uid:\t700001\t700001", "Uid:\t700001\t0")).is_unprivileged());
        assert!(!Status::parse(&JAILED.replace("Bnd:\t0", "Bnd:\t1")).has_no_capabilities());
        assert!(!Status::parse("").is_unprivileged());
        assert!(!Status::parse("").has_no_capabilities());
    }

    #[test]
    fn this_process_is_not_jailed() {
        let pid = std::process::id() as i32;
        let seen = Boundary::observe(pid, Accelerator::Tcg, Landlock::Absent, None).unwrap();
        let missing = seen.missing(Requirement::Required);
        for layer in ["mount namespace", "network namespace", "pid namespace", "user namespace", "no capabilities"] {
            assert!(missing.contains(&layer) || layer == "no capabilities" && !rustix::process::geteuid().is_root());
        }
        assert!(!seen.missing(Requirement::IfAvailable).contains(&"user namespace"));
    }
}
