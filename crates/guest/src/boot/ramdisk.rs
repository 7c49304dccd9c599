//! The initial ramdisk, which holds just enough to mount the disk.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, mount, mount_move};
use rustix::process::{chdir, chroot};

use super::mounts::mount_kernels;
use super::sequence::{BootError, During};
use crate::console;

/// The folder with the modules to load, and with the file that lists their order.
pub const MODULES: &str = "/modules";

const DISK: &str = "/dev/vda";
const NEW_ROOT: &str = "/newroot";

/// Long, because the host may be busy.
const DISK_DEADLINE: Duration = Duration::from_secs(30);
const DISK_POLL: Duration = Duration::from_millis(5);

/// The kernel decompresses the module itself.
const MODULE_INIT_COMPRESSED_FILE: i32 = 4;

/// Loads the modules, mounts the disk and makes it the root.
pub fn move_to_disk() -> Result<(), BootError> {
    mount_kernels()?;
    console::use_kernel_log();
    load_modules()?;
    wait_for_disk()?;
    fs::create_dir_all(NEW_ROOT).during(|| format!("make {NEW_ROOT}"))?;
    mount(DISK, NEW_ROOT, "ext4", MountFlags::NOATIME, c"").during(|| format!("mount {DISK}"))?;
    remove_ramdisk();
    for target in ["/dev", "/proc", "/sys"] {
        let there = format!("{NEW_ROOT}{target}");
        fs::create_dir_all(&there).during(|| format!("make {there}"))?;
        mount_move(target, &there).during(|| format!("move {target}"))?;
    }
    chdir(NEW_ROOT).during(|| format!("enter {NEW_ROOT}"))?;
    mount_move(".", "/").during(|| "move the new root".to_owned())?;
    chroot(".").during(|| "change the root".to_owned())?;
    chdir("/").during(|| "enter the new root".to_owned())
}

fn load_modules() -> Result<(), BootError> {
    let order = Path::new(MODULES).join("order");
    let order = fs::read_to_string(&order).during(|| format!("read {}", order.display()))?;
    for name in order.lines().map(str::trim).filter(|name| !name.is_empty()) {
        let path = Path::new(MODULES).join(name);
        let module = File::open(&path).during(|| format!("open {}", path.display()))?;
        let flags = if name.ends_with(".ko") { 0 } else { MODULE_INIT_COMPRESSED_FILE };
        match rustix::system::finit_module(&module, c"", flags) {
            // The module is built in.
            Err(rustix::io::Errno::EXIST) => {}
            result => result.during(|| format!("load the module {name}"))?,
        }
    }
    Ok(())
}

fn wait_for_disk() -> Result<(), BootError> {
    let deadline = Instant::now() + DISK_DEADLINE;
    while !Path::new(DISK).exists() {
        if Instant::now() > deadline {
            return Err(BootError::NoDisk(DISK));
        }
        // Polls, because listening to bus events is not worth it for one device.
        std::thread::sleep(DISK_POLL);
    }
    Ok(())
}

/// Removes the ramdisk's files, which would stay in memory and in every snapshot. The agent's own file stays open.
fn remove_ramdisk() {
    let _ = fs::remove_dir_all(MODULES);
    let _ = fs::remove_file("/init");
}
