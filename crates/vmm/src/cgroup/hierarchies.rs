//! The host's hierarchies of control groups.

use std::fs;
use std::io;
use std::path::PathBuf;

const V1_CONTROLLERS: [&str; 4] = ["memory", "cpu", "pids", "blkio"];

/// This process's place in the host's hierarchies.
pub(super) struct Hierarchies {
    pub v2: Option<Place>,
    pub v1: Vec<(&'static str, Place)>,
}

pub(super) struct Place {
    pub mount: PathBuf,
    pub group: PathBuf,
}

impl Hierarchies {
    pub fn of_this_process() -> io::Result<Self> {
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
            for controller in V1_CONTROLLERS.into_iter().filter(|c| controllers.split(',').any(|name| name == *c)) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

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
}
