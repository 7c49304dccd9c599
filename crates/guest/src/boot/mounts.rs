//! The file systems that programs expect.

use std::ffi::CString;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use rustix::mount::{MountFlags, mount};

use super::sequence::{BootError, During};
use crate::cgroup;

/// `favordynmods`: moving a process between groups then takes microseconds instead of an RCU grace period.
const CGROUP_OPTIONS: &str = "favordynmods";

/// Mounts the kernel's own file systems, which even the ramdisk needs.
pub fn mount_kernels() -> Result<(), BootError> {
    let strict = MountFlags::NOSUID | MountFlags::NOEXEC | MountFlags::NODEV;
    mount_one("proc", "/proc", strict, "")?;
    mount_one("sysfs", "/sys", strict, "")?;
    mount_one("devtmpfs", "/dev", MountFlags::NOSUID, "mode=0755")
}

pub fn mount_all() -> Result<(), BootError> {
    let strict = MountFlags::NOSUID | MountFlags::NOEXEC | MountFlags::NODEV;
    let shared = MountFlags::NOSUID | MountFlags::NODEV;
    mount_kernels()?;
    mount_one("devpts", "/dev/pts", MountFlags::NOSUID | MountFlags::NOEXEC, "mode=0620,gid=5,ptmxmode=0666")?;
    mount_one("tmpfs", "/dev/shm", shared, "mode=1777")?;
    mount_one("tmpfs", "/run", shared, "mode=0755")?;
    // A kernel may lack the option, or control groups altogether; the agent works without either.
    if mount_one("cgroup2", cgroup::ROOT, strict, CGROUP_OPTIONS).is_err() {
        let _ = mount_one("cgroup2", cgroup::ROOT, strict, "");
    }
    make_links();
    Ok(())
}

/// Mounts a file system on a directory, unless one is mounted there: some were moved over from the ramdisk.
pub fn mount_one(kind: &str, target: &str, flags: MountFlags, options: &str) -> Result<(), BootError> {
    let step = || format!("mount {kind} on {target}");
    fs::create_dir_all(target).during(step)?;
    if is_mounted(target) {
        return Ok(());
    }
    let options = CString::new(options).unwrap_or_default();
    mount(kind, target, kind, flags, options.as_c_str()).during(step)
}

fn is_mounted(target: &str) -> bool {
    let device = |path: &Path| fs::metadata(path).ok().map(|metadata| metadata.dev());
    let target = Path::new(target);
    device(target) != target.parent().and_then(device)
}

/// Makes the links that udev would make.
fn make_links() {
    let links = [
        ("/proc/self/fd", "/dev/fd"),
        ("/proc/self/fd/0", "/dev/stdin"),
        ("/proc/self/fd/1", "/dev/stdout"),
        ("/proc/self/fd/2", "/dev/stderr"),
    ];
    for (target, link) in links {
        if !Path::new(link).exists() {
            let _ = symlink(target, link);
        }
    }
    let _ = fs::create_dir_all("/run/lock");
}
