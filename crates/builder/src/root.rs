//! The machine's root file system without what is mounted on it.

use rustix::mount::{MountFlags, MountPropagationFlags, mount_bind, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::Failure;

const PLACE: &str = "/run/.sandling-root";

/// Makes the disk's own root this process's root. So `/proc`, `/dev` and `/run` are the image's directories, and links
/// lead to where they lead in the image.
pub fn enter() -> Result<(), Failure> {
    private_mounts()?;
    std::fs::create_dir_all(PLACE).map_err(|error| format!("cannot create {PLACE}: {error}"))?;
    mount_bind("/", PLACE).map_err(|error| format!("cannot bind the root file system: {error}"))?;
    rustix::process::chroot(PLACE).map_err(|error| format!("cannot enter the root file system: {error}"))?;
    std::env::set_current_dir("/").map_err(|error| format!("cannot enter /: {error}"))
}

/// Mounts of this process are invisible to all others, and end with it.
pub fn private_mounts() -> Result<(), Failure> {
    // SAFETY: this process has one thread, and a mount namespace shares no memory or descriptors.
    let unshared = unsafe { unshare_unsafe(UnshareFlags::NEWNS) };
    unshared.map_err(|error| format!("cannot create a mount namespace: {error}"))?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(|error| format!("cannot make the mounts private: {error}"))
}

/// The flags of a mount that cannot be written.
pub const READ_ONLY: MountFlags = MountFlags::RDONLY;
