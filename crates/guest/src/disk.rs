//! Growing the root file system to fill its disk.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use sandling_protocol::{Failure, Response};

use crate::failure::io_failure;

/// `_IOW('f', 16, u64)`: the new number of blocks.
const EXT4_IOC_RESIZE_FS: libc::c_ulong = 0x4008_6610;

/// The kernel's unit for the size of a disk, whatever the disk's own sectors are.
const SECTOR_BYTES: u64 = 512;

/// The kernel learns the new size by an interrupt, which takes a while on a busy host.
const GROWS_WITHIN: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Grows the root file system to fill its disk, as soon as the disk has this many bytes.
pub fn grow_root(bytes: u64) -> Result<Response, Failure> {
    grow("/", bytes).map(|()| Response::Done).map_err(|error| io_failure("growing the root file system", &error))
}

fn grow(mount: &str, bytes: u64) -> io::Result<()> {
    let device = fs::metadata(mount)?.dev();
    let size = format!("/sys/dev/block/{}:{}/size", libc::major(device), libc::minor(device));
    let deadline = Instant::now() + GROWS_WITHIN;
    let sectors = loop {
        let sectors: u64 = fs::read_to_string(&size)?.trim().parse().map_err(io::Error::other)?;
        if sectors * SECTOR_BYTES >= bytes {
            break sectors;
        }
        if Instant::now() > deadline {
            return Err(io::Error::other("the disk has not grown"));
        }
        std::thread::sleep(LOOK_EVERY);
    };
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
