//! Control groups. They keep user processes from starving the agent, and show which command ran out of memory.
//!
//! All user processes are below one group, which carries the limits. Each command has its own group below it. Making a
//! group is slow, so empty groups are reused.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

pub const ROOT: &str = "/sys/fs/cgroup";

/// Memory that user processes cannot use, of what is free at boot. It keeps the agent and the kernel working, and makes
/// the limit apply before the machine thrashes.
const RESERVED_BYTES: u64 = 24 * 1024 * 1024;

/// Empty groups kept for the next commands.
const READY: usize = 8;

/// A command that was killed and still has this many processes is a fork bomb; fewer may be a server in the background.
const RUNAWAY_TASKS: u64 = 64;

#[derive(Default)]
pub struct Cgroups {
    /// `None` without control groups, as in tests.
    user: Option<PathBuf>,
    ready: Vec<Cgroup>,
    /// Groups that were returned while they still had processes.
    lingering: Vec<Cgroup>,
    made: u64,
    forks_refused: u64,
    /// The last argument of `limit_pids`.
    pids: Option<Option<u32>>,
}

/// The group of one command.
pub struct Cgroup {
    path: PathBuf,
    procs: File,
    /// The agent killed its command; see [`Cgroups::kill_runaways`].
    condemned: bool,
}

impl Cgroups {
    /// Makes the group of all user processes below `root`, where cgroup2 is mounted.
    pub fn new(root: &Path, memory_free_bytes: u64) -> io::Result<Self> {
        fs::write(root.join("cgroup.subtree_control"), "+memory +pids")?;
        // The agent gets as much processor time as all user processes together, however many they are. Best effort,
        // because a kernel may lack this controller.
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

    /// Freezes every user process.
    pub fn freeze(&self) -> io::Result<()> {
        let Some(user) = &self.user else {
            return Ok(());
        };
        fs::write(user.join("cgroup.freeze"), "1")
    }

    /// An empty group; `None` without control groups.
    pub fn take(&mut self) -> Option<Cgroup> {
        if self.ready.is_empty() {
            self.collect();
        }
        self.ready.pop().or_else(|| self.make().ok())
    }

    /// Takes a group back, if there is one. It is reused when its last process has ended.
    pub fn give_back(&mut self, cgroup: Option<Cgroup>) {
        self.lingering.extend(cgroup);
        if self.lingering.len() > READY {
            self.collect();
        }
    }

    /// Kills the rest of commands that the agent killed, if they are fork bombs: processes that fork faster than a
    /// process group can be signalled.
    pub fn kill_runaways(&mut self) {
        let refused = self.forks_were_refused();
        for cgroup in self.lingering.iter().filter(|cgroup| cgroup.condemned) {
            if cgroup.is_running_away(refused) {
                cgroup.kill();
            }
        }
    }

    /// Kills a command's whole group if it is a fork bomb.
    pub fn condemn(&mut self, cgroup: &mut Cgroup) {
        cgroup.condemned = true;
        if cgroup.is_running_away(self.forks_were_refused()) {
            cgroup.kill();
        }
    }

    /// Whether the limit on processes made a fork fail since the last call.
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

    /// Finds the groups that have become empty.
    fn collect(&mut self) {
        let (lingering, empty) = std::mem::take(&mut self.lingering).into_iter().partition(Cgroup::is_populated);
        self.lingering = lingering;
        for mut cgroup in empty {
            cgroup.condemned = false;
            // A group with a count of kills is not reused: the count would be taken for the next command's.
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

    /// Moves a running process into the group.
    pub fn adopt(&self, pid: u32) -> io::Result<()> {
        (&self.procs).write_all(pid.to_string().as_bytes())
    }

    fn is_running_away(&self, forks_refused: bool) -> bool {
        let tasks = fs::read_to_string(self.path.join("pids.current")).unwrap_or_default();
        let tasks: u64 = tasks.trim().parse().unwrap_or(0);
        tasks > RUNAWAY_TASKS || (forks_refused && tasks > 0)
    }

    /// Kills every process in the group, however fast they fork.
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
    fn without_control_groups_nothing_fails() {
        let mut none = Cgroups::default();
        assert!(none.take().is_none());
        none.kill_runaways();
        assert!(none.limit_pids(Some(3)).is_ok());
    }

    #[test]
    fn a_counter_is_found_among_similar_names() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("memory.events");
        fs::write(&path, "oom 3\noom_kill 2\noom_group_kill 1\n").unwrap();
        assert_eq!((counter(&path, "oom_kill"), counter(&path, "oom_group_kill"), counter(&path, "low")), (2, 1, 0));
    }
}
