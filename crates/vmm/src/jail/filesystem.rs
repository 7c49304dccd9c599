//! The program's file system: an empty one, with bind mounts of only what the description names.
//!
//! ```text
//! /usr/bin/PROGRAM, the loader, shared libraries, the program's data   read-only
//! /preload.so                                                          read-only, if there is one
//! /PROGRAM                                                              read-only, if it is static: instead of the above
//! /dev/{null,zero,urandom}, and kvm if requested
//! /layers/NAME                                                          read-only
//! /vm                                                                   the machine's own, the only place to write
//! ```
//!
//! There is no `/proc` and no `/sys`. The root itself is read-only and the host's tree is detached.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind_recursive, mount_change, unmount,
};
use rustix::process::{chdir, pivot_root};

use super::spec::{Layer, Linkage, Spec, Step, StepError, is_plain_name};
use super::users::MachineUser;
use super::{DEVICES, FILES, LAYERS, MEMORY, MachineDir, PRELOAD};

const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
const NOT_EXECUTABLE: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC;

/// Builds the new root and moves into it.
pub(super) fn enter(spec: &Spec, user: &MachineUser) -> Result<(), StepError> {
    let directory = MachineDir::new(&spec.directory);
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).step("making mounts private")?;
    // Over the supervisor's directory: it exists, it is ours, and nothing in it is bound.
    let root = directory.supervisor();
    let options = c"size=256k,nr_inodes=512,mode=0755";
    mount("tmpfs", &root, "tmpfs", MountFlags::NOSUID, options).step("mounting an empty root")?;
    chdir(&root).step("entering the empty root")?;

    match &spec.program.linkage {
        Linkage::Static { place } => bind(&spec.program.path, place, READ_ONLY).step("binding the program")?,
        Linkage::Dynamic => {
            for path in library_paths().iter().chain([&spec.program.path]).chain(&spec.program.data) {
                mirror(path).step(format!("binding {}", path.display()))?;
            }
        }
    }
    bind_devices(spec, user).step("binding devices")?;
    bind(&directory.files(), FILES, NOT_EXECUTABLE | libc::MOUNT_ATTR_NODEV).step("binding the machine's files")?;
    for layer in &spec.program.layers {
        bind_layer(layer, READ_ONLY | NOT_EXECUTABLE).step(format!("binding the layer {}", layer.name))?;
    }
    for layer in &spec.program.code {
        bind_layer(layer, READ_ONLY).step(format!("binding the layer {}", layer.name))?;
    }
    if let Some(preload) = &spec.program.preload {
        bind(preload, PRELOAD, READ_ONLY).step("binding the preloaded library")?;
    }
    if let Some(memory) = &spec.program.memory {
        bind(memory, MEMORY, READ_ONLY | NOT_EXECUTABLE).step("binding the memory")?;
    }
    // One level only: the mounts on top keep their own attributes.
    set_attributes(Path::new("."), libc::MOUNT_ATTR_RDONLY | NOT_EXECUTABLE, 0).step("sealing the root")?;
    pivot_root(".", ".").step("changing the root")?;
    unmount(".", UnmountFlags::DETACH).step("detaching the host's tree")?;
    chdir("/").step("entering the new root")
}

/// Where a dynamic program finds its loader and its libraries, on distributions with and without a merged `/usr`.
pub(super) fn library_paths() -> Vec<PathBuf> {
    let multiarch = |base: &str| {
        let narrow = Path::new(base).join("x86_64-linux-gnu");
        if narrow.is_dir() { narrow } else { PathBuf::from(base) }
    };
    let is_link = |path: &str| Path::new(path).is_symlink();
    let lib = if is_link("/lib") { PathBuf::from("/lib") } else { multiarch("/lib") };
    let candidates = [lib, "/lib64".into(), multiarch("/usr/lib"), "/usr/lib64".into(), "/etc/ld.so.cache".into()];
    candidates.into_iter().filter(|path| path.symlink_metadata().is_ok()).collect()
}

/// Puts a path of the host at the same place in the new root: a link as a link, anything else bound read-only.
fn mirror(path: &Path) -> io::Result<()> {
    if path.is_symlink() {
        let place = inside(path);
        make_parent(&place)?;
        return symlink(fs::read_link(path)?, place);
    }
    if !path.exists() {
        return Ok(());
    }
    bind(path, path, READ_ONLY)
}

fn bind_layer(layer: &Layer, attributes: u64) -> io::Result<()> {
    if !is_plain_name(&layer.name) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a layer's name must be a plain file name"));
    }
    bind(&layer.path, Path::new(LAYERS).join(&layer.name), attributes)
}

fn bind_devices(spec: &Spec, user: &MachineUser) -> io::Result<()> {
    for device in DEVICES {
        bind(Path::new(device), device, NOT_EXECUTABLE)?;
    }
    match user {
        _ if !spec.program.kvm => Ok(()),
        // The host's node belongs to root or to a group; the machine's user gets a node of its own.
        MachineUser::OfRoot(user) => {
            let device = fs::metadata("/dev/kvm")?.rdev();
            mknodat(CWD, "dev/kvm", FileType::CharacterDevice, Mode::from_raw_mode(0o600), device)?;
            chown("dev/kvm", Some(user.uid), Some(user.gid))
        }
        MachineUser::Subordinate(..) | MachineUser::Caller => bind(Path::new("/dev/kvm"), "/dev/kvm", NOT_EXECUTABLE),
    }
}

fn bind(source: &Path, target: impl AsRef<Path>, attributes: u64) -> io::Result<()> {
    let place = inside(target.as_ref());
    make_parent(&place)?;
    if source.is_dir() {
        fs::create_dir_all(&place)?;
    } else {
        fs::File::create(&place)?;
    }
    mount_bind_recursive(source, &place)?;
    set_attributes(&place, attributes, libc::AT_RECURSIVE)
}

/// Only adds attributes: in a user namespace the kernel allows nothing else.
fn set_attributes(place: &Path, attributes: u64, flags: i32) -> io::Result<()> {
    let path = std::ffi::CString::new(place.as_os_str().as_encoded_bytes())?;
    let wanted = libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation: 0, userns_fd: 0 };
    // SAFETY: a NUL-terminated path and a structure of the size that is passed with it.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            &raw const wanted,
            size_of::<libc::mount_attr>(),
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The same path relative to the working directory, which is the new root until `pivot_root`.
fn inside(path: &Path) -> PathBuf {
    path.strip_prefix("/").unwrap_or(path).to_owned()
}

fn make_parent(place: &Path) -> io::Result<()> {
    place.parent().map_or(Ok(()), fs::create_dir_all)
}
