//! Volumes: disks that the host plugs in, and that the guest mounts.
//!
//! A volume's slot is its address on the SCSI bus. A volume is a whole disk with an ext4 file system.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, UnmountFlags, mount as mount_fs, mount_remount, unmount as unmount_fs};
use sandling_protocol::{Failure, FailureKind, Response};

use crate::failure::{failure, io_failure};
use crate::files::check_path;
use crate::scsi::find_disk;

/// A disk usually appears within milliseconds, but takes longer on a busy host.
const APPEARS_WITHIN: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(5);
const KIND: &str = "ext4";
/// The paths that the machine itself needs.
const NOT_OVER: [&str; 6] = ["/proc", "/sys", "/dev", "/run", "/etc", "/usr"];

pub fn mount(slot: u32, path: &str, read_only: bool) -> Result<Response, Failure> {
    let place = check_place(path)?;
    let disk = wait_for_disk(slot)?;
    link_as_virtio_disk(slot, &disk);
    let about = |error: &io::Error| match error.raw_os_error() {
        Some(libc::EBUSY) => failure(
            FailureKind::Busy,
            format!("{path}: a file of the volume is open for writing, or the directory is in use"),
        ),
        _ => io_failure(format!("mounting a volume at {path}"), error),
    };
    fs::create_dir_all(place).map_err(|error| io_failure(path, &error))?;
    let flags = if read_only { MountFlags::RDONLY } else { MountFlags::empty() };
    let here = mounts_of(&disk).iter().any(|mounted| mounted == place);
    let done = if here {
        mount_remount(place, flags, c"").map_err(io::Error::from)
    } else {
        mount_when_ready(&disk, place, flags)
    };
    done.map(|()| Response::Done).map_err(|error| about(&error))
}

/// Retries, because a disk's node appears a moment before it can be opened.
fn mount_when_ready(disk: &Path, place: &Path, flags: MountFlags) -> io::Result<()> {
    let options = if flags.contains(MountFlags::RDONLY) { c"" } else { c"discard" };
    let deadline = Instant::now() + APPEARS_WITHIN;
    loop {
        match mount_fs(disk, place, KIND, flags, options) {
            Err(rustix::io::Errno::NXIO) if Instant::now() < deadline => std::thread::sleep(LOOK_EVERY),
            done => return done.map_err(io::Error::from),
        }
    }
}

pub fn unmount(slot: u32, lost: bool) -> Result<Response, Failure> {
    let Some(disk) = find_disk(slot) else { return Ok(Response::Done) };
    let mut busy = None;
    // The last mount first, because one may lie inside another.
    for place in mounts_of(&disk).iter().rev() {
        let about = |error: io::Error| io_failure(format!("unmounting {}", place.display()), &error);
        if !lost {
            let opened = File::open(place).map_err(about)?;
            rustix::fs::syncfs(opened).map_err(|error| about(error.into()))?;
            match unmount_fs(place, UnmountFlags::empty()) {
                Err(rustix::io::Errno::BUSY) => {}
                done => {
                    done.map_err(|error| about(error.into()))?;
                    continue;
                }
            }
        }
        unmount_fs(place, UnmountFlags::DETACH).map_err(|error| about(error.into()))?;
        busy = Some(place.clone());
    }
    match busy {
        Some(place) if !lost => Err(failure(FailureKind::Busy, format!("{} is still in use", place.display()))),
        _ => Ok(Response::Done),
    }
}

/// Refuses paths over which a mount would hide what the machine needs.
fn check_place(path: &str) -> Result<&Path, Failure> {
    let place = check_path(path)?;
    let plain = place.components().all(|part| !matches!(part, std::path::Component::ParentDir));
    let over = NOT_OVER.iter().any(|kept| place.starts_with(kept));
    if !plain || over || place == Path::new("/") {
        return Err(failure(
            FailureKind::Invalid,
            format!("a volume cannot be mounted at {path:?}; try /mnt or /data"),
        ));
    }
    Ok(place)
}

fn wait_for_disk(slot: u32) -> Result<PathBuf, Failure> {
    let deadline = Instant::now() + APPEARS_WITHIN;
    loop {
        if let Some(disk) = find_disk(slot) {
            return Ok(disk);
        }
        if Instant::now() > deadline {
            return Err(failure(FailureKind::NotFound, format!("the disk in slot {slot} did not appear")));
        }
        // Polls, because the agent does not listen to bus events.
        std::thread::sleep(LOOK_EVERY);
    }
}

/// The directories where a disk is mounted, in the order of mounting.
fn mounts_of(disk: &Path) -> Vec<PathBuf> {
    use std::os::unix::fs::MetadataExt;
    let Ok(device) = fs::metadata(disk).map(|node| node.rdev()) else { return Vec::new() };
    let number = format!("{}:{}", libc::major(device), libc::minor(device));
    parse_mounts(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default(), &number)
}

fn parse_mounts(table: &str, device: &str) -> Vec<PathBuf> {
    let mounts = table.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(2);
        (fields.next()? == device).then(|| fields.nth(1).map(unescape))?
    });
    mounts.collect()
}

/// Decodes the octal escapes that the kernel uses for blanks and the like.
fn unescape(field: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    let mut bytes = Vec::new();
    let mut rest = field.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let octal = (first == b'\\').then(|| after.get(..3)).flatten();
        let octal = octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(octal.unwrap_or(first));
        rest = if octal.is_some() { &after[3..] } else { after };
    }
    std::ffi::OsString::from_vec(bytes).into()
}

/// Links the disk as `/dev/vdb` and so on, where programs written for other products look for volumes.
fn link_as_virtio_disk(slot: u32, disk: &Path) {
    let Some(letter) = u8::try_from(slot).ok().and_then(|slot| b'b'.checked_add(slot)).filter(u8::is_ascii_lowercase)
    else {
        return;
    };
    let link = Path::new("/dev").join(format!("vd{}", char::from(letter)));
    if fs::read_link(&link).is_ok() {
        let _ = fs::remove_file(&link);
    }
    // Best effort: an existing file of that name is not replaced.
    let _ = symlink(disk, link);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_their_device_in_order() {
        let table = "22 1 254:0 / / rw - ext4 /dev/vda rw\n\
            30 22 8:0 / /data rw - ext4 /dev/sda rw\n\
            31 22 8:16 / /other rw - ext4 /dev/sdb rw\n\
            32 30 8:0 / /data/a\\040b rw - ext4 /dev/sda rw\n";
        assert_eq!(parse_mounts(table, "8:0"), [PathBuf::from("/data"), PathBuf::from("/data/a b")]);
        assert!(parse_mounts("nonsense\n\n1 2\n", "8:0").is_empty());
    }

    #[test]
    fn mounts_over_paths_that_the_machine_needs_are_refused() {
        for bad in ["/", "//", "/proc", "/dev/x", "/sys", "/run/x", "/mnt/../etc", "relative", "", "/a\0b"] {
            assert!(check_place(bad).is_err(), "{bad:?}");
        }
        for good in ["/mnt/data", "/data", "/workspace/cache", "/root/x"] {
            assert!(check_place(good).is_ok(), "{good:?}");
        }
    }
}
