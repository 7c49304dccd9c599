//! Control groups: the kernel limits memory, CPU and tasks of the supervisor and QEMU together.
//!
//! Best effort: where the host lets this user create a group, it is created beside the caller's own. Elsewhere there is
//! none, and the boundary reports that. The caller's own processes are never moved.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

const CONTROLLERS: [&str; 3] = ["memory", "cpu", "pids"];
const CPU_PERIOD_US: u64 = 100_000;

/// The version of control groups that enforces the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CgroupVersion {
    V1,
    V2,
}

/// What a group may use; `None` means unlimited.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupLimits {
    pub memory_bytes: Option<u64>,
    /// Thousandths of one CPU.
    pub cpu_milli: Option<u32>,
    pub tasks: Option<u32>,
}

/// The group of one machine: one directory, or one per controller with version 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cgroup {
    pub version: CgroupVersion,
    pub directories: Vec<PathBuf>,
    /// The controllers in use: some of `memory`, `cpu`, `pids`.
    pub controllers: Vec<String>,
}

impl Cgroup {
    /// Creates the group of the machine in `machine_dir`, or none where the host does not allow it.
    pub fn create(machine_dir: &Path, limits: &CgroupLimits) -> io::Result<Option<Self>> {
        Self::create_named(&name_of(machine_dir)?, limits)
    }

    /// The group that is left if a caller died before it could record the machine in `machine_dir`.
    pub fn left_behind(machine_dir: &Path) -> io::Result<Option<Self>> {
        let name = name_of(machine_dir)?;
        let hierarchies = Hierarchies::of_this_process()?;
        let v2 = hierarchies.v2.iter().flat_map(|place| place.group.ancestors().map(|group| group.join(&name)));
        let v1 = hierarchies.v1.iter().map(|(_, place)| place.group.join(&name));
        let directories: Vec<_> = v2.chain(v1).filter(|directory| directory.is_dir()).collect();
        let group = Self { version: CgroupVersion::V2, directories, controllers: Vec::new() };
        Ok((!group.directories.is_empty()).then_some(group))
    }

    /// Creates a group, removes it again, and returns its description.
    pub fn create_probe(limits: &CgroupLimits) -> io::Result<Option<Self>> {
        let group = Self::create_named(&format!("sandling-probe-{}", std::process::id()), limits)?;
        if let Some(group) = &group {
            group.remove()?;
        }
        Ok(group)
    }

    fn create_named(name: &str, limits: &CgroupLimits) -> io::Result<Option<Self>> {
        let hierarchies = Hierarchies::of_this_process()?;
        Ok(create_v2(&hierarchies, name, limits).or_else(|| create_v1(&hierarchies, name, limits)))
    }

    /// Removes the group. The kernel refuses this while a process is in it, and for a moment after the process's end.
    pub fn remove(&self) -> io::Result<()> {
        for directory in &self.directories {
            match fs::remove_dir(directory) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

/// The same directory always gets the same name, so that a group of a caller that died is reused and not leaked.
fn name_of(machine_dir: &Path) -> io::Result<String> {
    let metadata = fs::metadata(machine_dir)?;
    Ok(format!("sandling-{:x}-{:x}", metadata.dev(), metadata.ino()))
}

/// This process's place in the host's hierarchies.
struct Hierarchies {
    v2: Option<Place>,
    v1: Vec<(&'static str, Place)>,
}

struct Place {
    mount: PathBuf,
    group: PathBuf,
}

impl Hierarchies {
    fn of_this_process() -> io::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let groups = fs::read_to_string("/proc/self/cgroup")?;
        Ok(Self::parse(&mounts, &groups))
    }

    fn parse(mounts: &str, groups: &str) -> Self {
        let mut found = Self { v2: None, v1: Vec::new() };
        for line in groups.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
            let place = |mount: PathBuf| Place { group: mount.join(path.trim_start_matches('/')), mount };
            if controllers.is_empty() {
                found.v2 = mount_point(mounts, "cgroup2", None).map(place);
                continue;
            }
            for controller in CONTROLLERS.into_iter().filter(|c| controllers.split(',').any(|name| name == *c)) {
                found
                    .v1
                    .extend(mount_point(mounts, "cgroup", Some(controller)).map(|mount| (controller, place(mount))));
            }
        }
        found
    }
}

fn mount_point(mounts: &str, kind: &str, option: Option<&str>) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut file_system = file_system.split(' ');
        let matches_kind = file_system.next() == Some(kind);
        let options = file_system.next_back()?;
        let matches_option = option.is_none_or(|wanted| options.split(',').any(|have| have == wanted));
        (matches_kind && matches_option).then(|| mount.split(' ').nth(4).map(PathBuf::from))?
    })
}

/// Creates a group in the nearest ancestor of our own group that delegates controllers to its children and is writable.
///
/// Our own group is not used: in version 2, a group with processes in it cannot have limited children.
fn create_v2(hierarchies: &Hierarchies, name: &str, limits: &CgroupLimits) -> Option<Cgroup> {
    let place = hierarchies.v2.as_ref()?;
    let ancestors = place.group.ancestors().take_while(|group| group.starts_with(&place.mount));
    for parent in ancestors {
        let offered = fs::read_to_string(parent.join("cgroup.subtree_control")).unwrap_or_default();
        let directory = parent.join(name);
        let settings: Vec<_> = offered.split_whitespace().filter_map(|name| v2_setting(name, limits)).collect();
        if settings.is_empty() || make(&directory).is_err() {
            continue;
        }
        let mut group =
            Cgroup { version: CgroupVersion::V2, directories: vec![directory.clone()], controllers: Vec::new() };
        for (controller, file, value) in settings {
            if fs::write(directory.join(file), value).is_ok() {
                group.controllers.push(controller.to_owned());
            }
        }
        if !group.controllers.is_empty() {
            return Some(group);
        }
        let _ = group.remove();
    }
    None
}

fn v2_setting(controller: &str, limits: &CgroupLimits) -> Option<(&'static str, &'static str, String)> {
    match controller {
        "memory" => limits.memory_bytes.map(|bytes| ("memory", "memory.max", bytes.to_string())),
        "cpu" => limits.cpu_milli.map(|milli| ("cpu", "cpu.max", format!("{} {CPU_PERIOD_US}", quota_us(milli)))),
        "pids" => limits.tasks.map(|tasks| ("pids", "pids.max", tasks.to_string())),
        _ => None,
    }
}

fn create_v1(hierarchies: &Hierarchies, name: &str, limits: &CgroupLimits) -> Option<Cgroup> {
    let mut group = Cgroup { version: CgroupVersion::V1, directories: Vec::new(), controllers: Vec::new() };
    for (controller, place) in &hierarchies.v1 {
        let Some((file, value)) = v1_setting(controller, limits) else { continue };
        let directory = place.group.join(name);
        if make(&directory).is_err() {
            continue;
        }
        if fs::write(directory.join(file), value).is_ok() {
            group.directories.push(directory);
            group.controllers.push((*controller).to_owned());
        } else {
            let _ = fs::remove_dir(&directory);
        }
    }
    (!group.directories.is_empty()).then_some(group)
}

fn v1_setting(controller: &str, limits: &CgroupLimits) -> Option<(&'static str, String)> {
    match controller {
        "memory" => limits.memory_bytes.map(|bytes| ("memory.limit_in_bytes", bytes.to_string())),
        "cpu" => limits.cpu_milli.map(|milli| ("cpu.cfs_quota_us", quota_us(milli).to_string())),
        "pids" => limits.tasks.map(|tasks| ("pids.max", tasks.to_string())),
        _ => None,
    }
}

/// The kernel refuses quotas below a millisecond.
fn quota_us(milli: u32) -> u64 {
    (u64::from(milli) * CPU_PERIOD_US / 1000).max(1000)
}

fn make(directory: &Path) -> io::Result<()> {
    match fs::create_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1_MOUNTS: &str = "30 25 0:27 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n\
                             31 25 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                             32 25 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn both_generations_are_found_where_they_are_mounted() {
        let found = Hierarchies::parse(V1_MOUNTS, "4:memory:/a/b\n2:cpu,cpuacct:/\n0::/user.slice\n");
        let groups: Vec<_> = found.v1.iter().map(|(name, place)| (*name, place.group.clone())).collect();
        let expected = [("memory", "/sys/fs/cgroup/memory/a/b".into()), ("cpu", "/sys/fs/cgroup/cpu,cpuacct/".into())];
        assert_eq!(groups, expected);
        assert_eq!(found.v2.unwrap().group, Path::new("/sys/fs/cgroup/unified/user.slice"));
    }

    #[test]
    fn version_2_uses_the_nearest_ancestor_that_delegates_controllers() {
        let mount = tempfile::tempdir().unwrap();
        let own = mount.path().join("user/session");
        fs::create_dir_all(&own).unwrap();
        fs::write(own.join("cgroup.subtree_control"), "").unwrap();
        fs::write(mount.path().join("user/cgroup.subtree_control"), "memory pids\n").unwrap();
        let hierarchies = Hierarchies { v2: Some(Place { mount: mount.path().into(), group: own }), v1: Vec::new() };
        let limits = CgroupLimits { memory_bytes: Some(1 << 20), cpu_milli: Some(1500), tasks: Some(64) };

        let group = create_v2(&hierarchies, "sandling-test", &limits).expect("a group");

        let directory = mount.path().join("user/sandling-test");
        assert_eq!(group.directories, std::slice::from_ref(&directory));
        assert_eq!(fs::read_to_string(directory.join("memory.max")).unwrap(), "1048576");
        assert_eq!(group.controllers, ["memory", "pids"], "cpu is not delegated");
        assert_eq!(fs::read_to_string(directory.join("pids.max")).unwrap(), "64");
    }

    #[test]
    fn a_host_without_controllers_gives_no_group() {
        let mount = tempfile::tempdir().unwrap();
        let hierarchies =
            Hierarchies { v2: Some(Place { mount: mount.path().into(), group: mount.path().into() }), v1: Vec::new() };
        assert_eq!(create_v2(&hierarchies, "sandling-test", &CgroupLimits::default()), None);
        assert_eq!(create_v1(&hierarchies, "sandling-test", &CgroupLimits::default()), None);
    }

    #[test]
    fn a_removed_group_may_be_removed_again() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("group");
        fs::create_dir(&directory).unwrap();
        let group = Cgroup { version: CgroupVersion::V2, directories: vec![directory], controllers: Vec::new() };
        group.remove().unwrap();
        group.remove().unwrap();
    }
}
