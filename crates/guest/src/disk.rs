//! The root file system, grown to fill its disk.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use sandling_protocol::{Failure, Response};

use crate::failure::io_failure;

/// `_IOW('f', 16, u64)`: the new number of blocks.
const EXT4_IOC_RESIZE_FS: libc::c_ulong = 0x4008_6610;

/// The kernel counts a disk in these, whatever its own sectors are.
const SECTOR_BYTES: u64 = 512;

pub fn grow_root() -> Result<Response, Failure> {
    grow("/").map(|()| Response::Done).map_err(|error| io_failure("growing the root file system", &error))
}

fn grow(mount: &str) -> io::Result<()> {
    let device = fs::metadata(mount)?.dev();
    let device = format!("/sys/dev/block/{}:{}/size", libc::major(device), libc::minor(device));
    let sectors: u64 = fs::read_to_string(device)?.trim().parse().map_err(io::Error::other)?;
    let current = rustix::fs::statvfs(mount)?;
    let blocks = sectors * SECTOR_BYTES / current.f_frsize;
    let root = File::open(mount)?;
    // SAFETY: the request reads one u64, which lives until the call returns.
    let done = unsafe { libc::ioctl(root.as_raw_fd(), EXT4_IOC_RESIZE_FS, &raw const blocks) };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
