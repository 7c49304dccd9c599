//! The jail's file system: programs and certificates of the host, read-only, and the build's workspace.
//!
//! ```text
//! /usr, and /bin, /lib and so on, which are links to it or directories   read-only
//! /etc/{alternatives,ssl,apt/trusted.gpg.d,…}                            read-only, and only what programs need
//! /dev/{null,zero,full,random,urandom,tty}, /dev/shm, /proc              its own
//! the workspace, at the same path, and /tmp                              the only places to write
//! ```

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, mount_change, unmount,
};
use rustix::process::{chdir, pivot_root};

use super::launch::Spec;

const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;

const MIRRORED: [&str; 14] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/apt/keyrings",
    "/etc/apt/trusted.gpg",
    "/etc/apt/trusted.gpg.d",
];

const DEVICES: [&str; 6] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// Links that shells and interpreters expect.
const LINKS: [(&str, &str); 4] = [
    ("dev/fd", "/proc/self/fd"),
    ("dev/stdin", "/proc/self/fd/0"),
    ("dev/stdout", "/proc/self/fd/1"),
    ("dev/stderr", "/proc/self/fd/2"),
];

/// Files of the jail's own, instead of the host's.
const OWN: [(&str, &str); 5] = [
    ("etc/passwd", "root:x:0:0::/tmp:/bin/sh\nnobody:x:65534:65534::/nonexistent:/usr/sbin/nologin\n"),
    ("etc/group", "root:x:0:\nnogroup:x:65534:\n"),
    ("etc/hosts", "127.0.0.1\tlocalhost\n"),
    ("etc/hostname", "sandling\n"),
    ("etc/resolv.conf", ""),
];

/// Why the kernel may refuse a new `/proc`, and what helps.
const COVERED_PROC: &str = "The kernel mounts no new /proc while parts of the present one are covered, as in most \
    containers. Build the template on the host and bring it here with `sandling template export` and `import`, or start the \
    container without masked paths";

/// Builds the new root and moves into it.
pub(super) fn enter(spec: &Spec) -> io::Result<()> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    mount("tmpfs", &spec.root, "tmpfs", MountFlags::NOSUID, c"size=1m,mode=0755")?;
    chdir(&spec.root)?;
    for path in MIRRORED {
        mirror(Path::new(path))?;
    }
    for device in DEVICES {
        bind(Path::new(device), libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC)?;
    }
    for (name, target) in LINKS {
        symlink(target, name)?;
    }
    fs::create_dir_all("etc/apt/apt.conf.d")?;
    for (name, content) in OWN {
        fs::write(name, content)?;
        fs::set_permissions(name, fs::Permissions::from_mode(0o644))?;
    }
    for (place, size) in [("tmp", c"size=256m,mode=1777"), ("dev/shm", c"size=64m,mode=1777")] {
        fs::create_dir_all(place)?;
        mount("tmpfs", place, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, size)?;
    }
    fs::create_dir("proc")?;
    mount("proc", "proc", "proc", MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC, None)
        .map_err(|error| io::Error::new(error.kind(), format!("{error}. {COVERED_PROC}")))?;
    let workspace = inside(&spec.workspace);
    fs::create_dir_all(&workspace)?;
    // Not what is mounted in it, which is this root.
    mount_bind(&spec.workspace, &workspace)?;
    for path in &spec.readable {
        // The build's user may not be able to reach a file in a home.
        if !inside(path).exists() && path.exists() {
            bind(path, READ_ONLY)?;
        }
    }
    // One level only: the mounts on top keep their own attributes.
    set_attributes(Path::new("."), READ_ONLY, 0)?;
    pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    Ok(chdir("/")?)
}

/// Puts a path of the host at the same place: a link as a link, anything else bound read-only.
fn mirror(path: &Path) -> io::Result<()> {
    if path.is_symlink() {
        let place = inside(path);
        place.parent().map_or(Ok(()), fs::create_dir_all)?;
        return symlink(fs::read_link(path)?, place);
    }
    if path.exists() { bind(path, READ_ONLY) } else { Ok(()) }
}

fn bind(path: &Path, attributes: u64) -> io::Result<()> {
    let place = inside(path);
    place.parent().map_or(Ok(()), fs::create_dir_all)?;
    if path.is_dir() {
        fs::create_dir_all(&place)?;
    } else {
        fs::File::create(&place)?;
    }
    mount_bind_recursive(path, &place)?;
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
