//! Control groups: the kernel limits memory, swap, CPU, tasks and disk rates of the supervisor and QEMU together.
//!
//! ```text
//! PARENT/sandling-DEVICE-INODE                     a machine that belongs to no tenant yet
//! PARENT/sandling-tenant-NAME/sandling-DEVICE-…    a machine of that tenant
//! ```
//!
//! All groups in PARENT have the same CPU weight. So when the host is busy, a tenant gets the same share whether it has
//! one busy machine or fifty. A machine that was started in advance moves to its tenant's group later; the memory that
//! it had by then is not counted there.
//!
//! Best effort: where the host lets this user create a group, it is created beside the caller's own. Elsewhere there is
//! none, and the boundary reports that. The caller's own processes are never moved.

mod hierarchies;
mod settings;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use hierarchies::Hierarchies;
use settings::Setting;
pub use settings::{CgroupLimits, DiskRate};

const V2_CONTROLLERS: [&str; 4] = ["memory", "cpu", "pids", "io"];
const TENANT_PREFIX: &str = "sandling-tenant-";
/// A tenant's group goes when its last machine ends, which may be at this moment.
const TENANT_TRIES: usize = 5;

/// The version of control groups that enforces the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CgroupVersion {
    V1,
    V2,
}

/// The group of one machine: one directory, or one per controller with version 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cgroup {
    pub version: CgroupVersion,
    pub directories: Vec<PathBuf>,
    /// The controllers in use: some of `memory`, `cpu`, `pids`, `io` (`blkio` with version 1).
    pub controllers: Vec<String>,
}

impl Cgroup {
    /// Creates the group of the machine in `machine_dir`, or none where the host does not allow it.
    pub fn create(machine_dir: &Path, limits: &CgroupLimits) -> io::Result<Option<Self>> {
        Self::create_named(&name_of(machine_dir)?, limits, machine_dir)
    }

    /// The group that is left if a caller died before it could record the machine in `machine_dir`.
    pub fn left_behind(machine_dir: &Path) -> io::Result<Option<Self>> {
        let name = name_of(machine_dir)?;
        let hierarchies = Hierarchies::of_this_process()?;
        let v2 = hierarchies.v2.iter().flat_map(|place| place.group.ancestors().map(Path::to_owned));
        let v1 = hierarchies.v1.iter().map(|(_, place)| place.group.clone());
        let parents = v2.chain(v1).flat_map(|parent| tenants(&parent).into_iter().chain([parent]));
        let directories: Vec<_> = parents.map(|parent| parent.join(&name)).filter(|path| path.is_dir()).collect();
        let group = Self { version: CgroupVersion::V2, directories, controllers: Vec::new() };
        Ok((!group.directories.is_empty()).then_some(group))
    }

    /// Creates a group for a machine on this path's disk, removes it again, and returns what it limits and what not.
    pub fn create_probe(limits: &CgroupLimits, on: &Path) -> io::Result<(Option<Self>, Vec<&'static str>)> {
        let group = Self::create_named(&format!("sandling-probe-{}", std::process::id()), limits, on)?;
        let missing = missing(group.as_ref(), limits);
        if let Some(group) = &group {
            group.remove()?;
        }
        Ok((group, missing))
    }

    fn create_named(name: &str, limits: &CgroupLimits, on: &Path) -> io::Result<Option<Self>> {
        let hierarchies = Hierarchies::of_this_process()?;
        let disk = settings::disk_of(on);
        let disk = disk.as_deref();
        Ok(create_v2(&hierarchies, name, limits, disk).or_else(|| create_v1(&hierarchies, name, limits, disk)))
    }

    /// Moves a process to this group. Waits for the kernel, some milliseconds.
    pub fn join(&self, process: u32) -> io::Result<()> {
        self.directories.iter().try_for_each(|group| fs::write(group.join("cgroup.procs"), process.to_string()))
    }

    /// Moves processes from this group to one with the same limits in the tenant's group. Returns the new group; this
    /// one is removed. Waits for the kernel, some milliseconds.
    pub fn move_to_tenant(&self, tenant: &str, pids: &[i32]) -> io::Result<Self> {
        let mut moved = Self { directories: Vec::new(), ..self.clone() };
        for directory in &self.directories {
            let joined = self.tenant_group(directory, tenant).and_then(|new| {
                moved.directories.push(new.clone());
                pids.iter().try_for_each(|pid| fs::write(new.join("cgroup.procs"), pid.to_string()))
            });
            if let Err(error) = joined {
                // Fails for a group that has the processes; the machine's end removes it.
                let _ = moved.remove();
                return Err(error);
            }
        }
        // The kernel is done with the old group in a moment; if not, it stays, empty, until the machine ends.
        if self.remove().is_err() {
            moved.directories.extend(self.directories.clone());
        }
        Ok(moved)
    }

    pub fn is_of_tenant(&self) -> bool {
        self.directories.iter().any(|directory| directory.parent().is_some_and(is_tenant))
    }

    /// Creates the copy of a group in its tenant's.
    fn tenant_group(&self, directory: &Path, tenant: &str) -> io::Result<PathBuf> {
        let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let tenants = parent.join(format!("{TENANT_PREFIX}{tenant}"));
        let new = tenants.join(name);
        let mut made = Ok(());
        for _ in 0..TENANT_TRIES {
            make(&tenants)?;
            if self.version == CgroupVersion::V2 {
                let offered: Vec<_> = self.controllers.iter().map(|controller| format!("+{controller}")).collect();
                let _ = fs::write(tenants.join("cgroup.subtree_control"), offered.join(" "));
            }
            made = make(&new);
            if made.is_ok() {
                break;
            }
        }
        made?;
        let copied = settings_of(directory, &new);
        copied.inspect_err(|_| drop(fs::remove_dir(&new))).map(|()| new)
    }

    /// Removes the group, and its tenant's if it was the last. The kernel refuses this while a process is in it, and for
    /// a moment after the process's end.
    pub fn remove(&self) -> io::Result<()> {
        for directory in &self.directories {
            match fs::remove_dir(directory) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            if let Some(tenant) = directory.parent().filter(|parent| is_tenant(parent)) {
                // Fails if the tenant has other machines.
                let _ = fs::remove_dir(tenant);
            }
        }
        Ok(())
    }
}

/// What these limits ask for and the group does not enforce.
fn missing(group: Option<&Cgroup>, limits: &CgroupLimits) -> Vec<&'static str> {
    let has = |names: &[&str]| group.is_some_and(|group| group.controllers.iter().any(|c| names.contains(&c.as_str())));
    let wanted = [
        ("memory", limits.memory_bytes.is_some() && !has(&["memory"])),
        ("CPU", limits.cpu_milli.is_some() && !has(&["cpu"])),
        ("tasks", limits.tasks.is_some() && !has(&["pids"])),
        ("disk rate", limits.disk != DiskRate::default() && !has(&["io", "blkio"])),
    ];
    wanted.into_iter().filter(|(_, missing)| *missing).map(|(name, _)| name).collect()
}

fn is_tenant(group: &Path) -> bool {
    group.file_name().is_some_and(|name| name.to_string_lossy().starts_with(TENANT_PREFIX))
}

/// The tenants' groups in this one.
fn tenants(parent: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| is_tenant(path)).collect()
}

/// Gives a group the limits of another one.
fn settings_of(from: &Path, to: &Path) -> io::Result<()> {
    const FILES: [&str; 10] = [
        "memory.max",
        "memory.swap.max",
        "cpu.max",
        "pids.max",
        "io.max",
        "memory.limit_in_bytes",
        // After the limit that it must not be below.
        "memory.memsw.limit_in_bytes",
        "cpu.cfs_quota_us",
        "blkio.throttle.read_bps_device",
        "blkio.throttle.write_bps_device",
    ];
    const MORE: [&str; 2] = ["blkio.throttle.read_iops_device", "blkio.throttle.write_iops_device"];
    for file in FILES.into_iter().chain(MORE) {
        let Ok(text) = fs::read_to_string(from.join(file)) else { continue };
        for line in text.lines().filter(|line| !line.is_empty()) {
            match fs::write(to.join(file), line) {
                // Some kernels do not count swap.
                Err(error) if !file.contains("sw") => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

/// The same directory always gets the same name, so that a group of a caller that died is reused and not leaked.
fn name_of(machine_dir: &Path) -> io::Result<String> {
    let metadata = fs::metadata(machine_dir)?;
    Ok(format!("sandling-{:x}-{:x}", metadata.dev(), metadata.ino()))
}

/// Creates a group in the nearest ancestor of our own group that delegates controllers to its children and is writable.
///
/// Our own group is not used: in version 2, a group with processes in it cannot have limited children.
fn create_v2(hierarchies: &Hierarchies, name: &str, limits: &CgroupLimits, disk: Option<&str>) -> Option<Cgroup> {
    let place = hierarchies.v2.as_ref()?;
    let ancestors = place.group.ancestors().take_while(|group| group.starts_with(&place.mount));
    for parent in ancestors {
        let offered = fs::read_to_string(parent.join("cgroup.subtree_control")).unwrap_or_default();
        let directory = parent.join(name);
        let offered = V2_CONTROLLERS.into_iter().filter(|name| offered.split_whitespace().any(|have| have == *name));
        let offered: Vec<_> = offered.map(|name| (name, settings::v2(name, limits, disk))).collect();
        if offered.iter().all(|(_, settings)| settings.is_empty()) || make(&directory).is_err() {
            continue;
        }
        let limiting = offered.into_iter().filter(|(_, settings)| apply(&directory, settings));
        let controllers: Vec<_> = limiting.map(|(name, _)| name.to_owned()).collect();
        let group = Cgroup { version: CgroupVersion::V2, directories: vec![directory], controllers };
        if !group.controllers.is_empty() {
            return Some(group);
        }
        let _ = group.remove();
    }
    None
}

fn create_v1(hierarchies: &Hierarchies, name: &str, limits: &CgroupLimits, disk: Option<&str>) -> Option<Cgroup> {
    let mut group = Cgroup { version: CgroupVersion::V1, directories: Vec::new(), controllers: Vec::new() };
    for (controller, place) in &hierarchies.v1 {
        let settings = settings::v1(controller, limits, disk);
        let directory = place.group.join(name);
        if settings.is_empty() || make(&directory).is_err() {
            continue;
        }
        if apply(&directory, &settings) {
            group.directories.push(directory);
            group.controllers.push((*controller).to_owned());
        } else {
            let _ = fs::remove_dir(&directory);
        }
    }
    (!group.directories.is_empty()).then_some(group)
}

/// Writes the settings of a controller; returns whether every essential one was accepted.
fn apply(group: &Path, settings: &[Setting]) -> bool {
    let written = settings.iter().filter(|setting| fs::write(group.join(setting.file), &setting.value).is_err());
    let refused: Vec<_> = written.collect();
    !settings.is_empty() && refused.iter().all(|setting| !setting.essential)
}

fn make(directory: &Path) -> io::Result<()> {
    match fs::create_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::hierarchies::Place;
    use super::*;

    fn limits() -> CgroupLimits {
        let (memory_bytes, swap_bytes) = (Some(1 << 20), Some(1 << 19));
        CgroupLimits { memory_bytes, swap_bytes, cpu_milli: Some(1500), tasks: Some(64), disk: DiskRate::default() }
    }

    #[test]
    fn a_machine_keeps_its_limits_in_its_tenants_group() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("sandling-1-2");
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("memory.max"), "4096\n").unwrap();
        fs::write(directory.join("io.max"), "8:0 rbps=1 wbps=2 riops=max wiops=max\n").unwrap();
        let controllers = vec!["memory".to_owned(), "io".to_owned()];
        let group = Cgroup { version: CgroupVersion::V2, directories: vec![directory], controllers };
        assert!(!group.is_of_tenant());

        let moved = group.move_to_tenant("abc", &[17]).unwrap();

        assert!(moved.is_of_tenant());
        let tenant = parent.path().join("sandling-tenant-abc");
        assert_eq!(moved.directories[0], tenant.join("sandling-1-2"));
        assert_eq!(fs::read_to_string(tenant.join("cgroup.subtree_control")).unwrap(), "+memory +io");
        let has = |file| fs::read_to_string(moved.directories[0].join(file)).unwrap();
        assert_eq!((has("memory.max"), has("cgroup.procs")), ("4096".to_owned(), "17".to_owned()));
        assert_eq!(has("io.max"), "8:0 rbps=1 wbps=2 riops=max wiops=max");
    }

    #[test]
    fn version_2_uses_the_nearest_ancestor_that_delegates_controllers() {
        let mount = tempfile::tempdir().unwrap();
        let own = mount.path().join("user/session");
        fs::create_dir_all(&own).unwrap();
        fs::write(own.join("cgroup.subtree_control"), "").unwrap();
        fs::write(mount.path().join("user/cgroup.subtree_control"), "memory pids\n").unwrap();
        let hierarchies = Hierarchies { v2: Some(Place { mount: mount.path().into(), group: own }), v1: Vec::new() };
        let limits = limits();

        let group = create_v2(&hierarchies, "sandling-test", &limits, None).expect("a group");

        let directory = mount.path().join("user/sandling-test");
        assert_eq!(group.directories, std::slice::from_ref(&directory));
        assert_eq!(fs::read_to_string(directory.join("memory.max")).unwrap(), "1048576");
        assert_eq!(group.controllers, ["memory", "pids"], "cpu is not delegated");
        assert_eq!(missing(Some(&group), &limits), ["CPU"]);
        assert_eq!(fs::read_to_string(directory.join("pids.max")).unwrap(), "64");
    }

    #[test]
    fn a_host_without_controllers_gives_no_group() {
        let mount = tempfile::tempdir().unwrap();
        let hierarchies =
            Hierarchies { v2: Some(Place { mount: mount.path().into(), group: mount.path().into() }), v1: Vec::new() };
        assert_eq!(create_v2(&hierarchies, "sandling-test", &CgroupLimits::default(), None), None);
        assert_eq!(create_v1(&hierarchies, "sandling-test", &CgroupLimits::default(), None), None);
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
