//! Control groups: what keeps a sandbox's processes from starving the agent, and tells who ran out of memory.
//!
//! All of the user's processes are below one group that carries the limits. Each command has a group of its own
//! below it. Making one is slow, so groups are used again once they are empty.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

pub const ROOT: &str = "/sys/fs/cgroup";

/// What the user's processes cannot have of the memory that is free at boot, so that the agent and the kernel can
/// always go on, and that a limit is reached before the machine thrashes.
const RESERVED_BYTES: u64 = 24 * 1024 * 1024;

/// Empty groups kept for the next commands.
const READY: usize = 8;

/// A command that was ended and still has so many processes is a fork bomb, not one that left a server behind.
const RUNAWAY_TASKS: u64 = 64;

#[derive(Default)]
pub struct Cgroups {
    /// Absent where there are no control groups, as in tests.
    user: Option<PathBuf>,
    ready: Vec<Cgroup>,
    /// Given back while processes were still in them.
    lingering: Vec<Cgroup>,
    made: u64,
    forks_refused: u64,
    /// What `limit_pids` was last told.
    pids: Option<Option<u32>>,
}

/// The group of one command.
pub struct Cgroup {
    path: PathBuf,
    procs: File,
    /// Its command was ended by us; see [`Cgroups::kill_runaways`].
    condemned: bool,
}

impl Cgroups {
    /// Makes the group of all user processes below `root`, where cgroup2 is mounted.
    pub fn new(root: &Path, memory_free_bytes: u64) -> io::Result<Self> {
        fs::write(root.join("cgroup.subtree_control"), "+memory +pids")?;
        // The agent gets as much of the processor as all user processes together, however many they are. A kernel
        // may lack this one.
        let _ = fs::write(root.join("cgroup.subtree_control"), "+cpu");
        let user = root.join("user");
        fs::create_dir_all(&user)?;
        fs::write(user.join("cgroup.subtree_control"), "+memory +pids")?;
        let memory = memory_free_bytes.saturating_sub(RESERVED_BYTES);
        fs::write(user.join("memory.max"), memory.to_string())?;
        let mut cgroups = Self { user: Some(user), ..Self::default() };
        for _ in 0..2 {
            let ready = cgroups.make()?;
            cgroups.ready.push(ready);
        }
        Ok(cgroups)
    }

    pub fn limit_pids(&mut self, pids: Option<u32>) -> io::Result<()> {
        if let Some(user) = self.user.as_ref().filter(|_| self.pids != Some(pids)) {
            fs::write(user.join("pids.max"), pids.map_or("max".to_owned(), |pids| pids.to_string()))?;
            self.pids = Some(pids);
        }
        Ok(())
    }

    /// Stops every process of the user.
    pub fn freeze(&self) -> io::Result<()> {
        let Some(user) = &self.user else {
            return Ok(());
        };
        fs::write(user.join("cgroup.freeze"), "1")
    }

    /// An empty group, or nothing where there are none.
    pub fn take(&mut self) -> Option<Cgroup> {
        if self.ready.is_empty() {
            self.collect();
        }
        self.ready.pop().or_else(|| self.make().ok())
    }

    /// Returns a group. It is used again when its last process has gone.
    pub fn give_back(&mut self, cgroup: Cgroup) {
        self.lingering.push(cgroup);
        if self.lingering.len() > READY {
            self.collect();
        }
    }

    /// Kills what a command left behind that was ended by us, if that runs away: processes that make new ones
    /// faster than a group of them can be signalled.
    pub fn kill_runaways(&mut self) {
        let refused = self.forks_were_refused();
        for cgroup in self.lingering.iter().filter(|cgroup| cgroup.condemned) {
            if cgroup.is_running_away(refused) {
                cgroup.kill();
            }
        }
    }

    /// Kills a command's whole group if it runs away.
    pub fn condemn(&mut self, cgroup: &mut Cgroup) {
        cgroup.condemned = true;
        if cgroup.is_running_away(self.forks_were_refused()) {
            cgroup.kill();
        }
    }

    /// Whether forks were refused for the limit since the last call.
    fn forks_were_refused(&mut self) -> bool {
        let Some(user) = &self.user else {
            return false;
        };
        let refused = counter(&user.join("pids.events"), "max");
        std::mem::replace(&mut self.forks_refused, refused) < refused
    }

    fn make(&mut self) -> io::Result<Cgroup> {
        let user = self.user.as_ref().ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))?;
        self.made += 1;
        let path = user.join(self.made.to_string());
        fs::create_dir(&path)?;
        fs::write(path.join("memory.oom.group"), "1")?;
        let procs = File::options().write(true).open(path.join("cgroup.procs"))?;
        Ok(Cgroup { path, procs, condemned: false })
    }

    /// Looks which groups have become empty.
    fn collect(&mut self) {
        let (lingering, empty) = std::mem::take(&mut self.lingering).into_iter().partition(Cgroup::is_populated);
        self.lingering = lingering;
        for mut cgroup in empty {
            cgroup.condemned = false;
            // A count of killings would be taken for the next command's.
            if self.ready.len() < READY && !cgroup.was_out_of_memory() {
                self.ready.push(cgroup);
            } else {
                let _ = fs::remove_dir(&cgroup.path);
            }
        }
    }
}

impl Cgroup {
    pub fn procs(&self) -> BorrowedFd<'_> {
        self.procs.as_fd()
    }

    /// Moves a running process in.
    pub fn adopt(&self, pid: u32) -> io::Result<()> {
        (&self.procs).write_all(pid.to_string().as_bytes())
    }

    fn is_running_away(&self, forks_refused: bool) -> bool {
        let tasks = fs::read_to_string(self.path.join("pids.current")).unwrap_or_default();
        let tasks: u64 = tasks.trim().parse().unwrap_or(0);
        tasks > RUNAWAY_TASKS || (forks_refused && tasks > 0)
    }

    /// Kills everything in it, however it forks.
    fn kill(&self) {
        let _ = fs::write(self.path.join("cgroup.kill"), "1");
    }

    pub fn was_out_of_memory(&self) -> bool {
        counter(&self.path.join("memory.events"), "oom_kill") > 0
    }

    fn is_populated(&self) -> bool {
        counter(&self.path.join("cgroup.events"), "populated") > 0
    }
}

fn counter(path: &Path, name: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_control_groups_there_are_none_and_nothing_fails() {
        let mut none = Cgroups::default();
        assert!(none.take().is_none());
        none.kill_runaways();
        assert!(none.limit_pids(Some(3)).is_ok());
    }

    #[test]
    fn a_counter_is_found_among_others_of_similar_names() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("memory.events");
        fs::write(&path, "oom 3\noom_kill 2\noom_group_kill 1\n").unwrap();
        assert_eq!((counter(&path, "oom_kill"), counter(&path, "oom_group_kill"), counter(&path, "low")), (2, 1, 0));
    }
}
