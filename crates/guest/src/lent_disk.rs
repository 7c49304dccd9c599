//! Disks that the host plugs in for a moment.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use sandling_protocol::{Failure, FailureKind, LentDisk};

use crate::failure::failure;
use crate::scsi::find_disk;

/// A disk usually appears within a tenth of a second, but takes longer on a busy host.
const APPEARS_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Opens the disk, as soon as it is there, at the beginning of its content.
pub fn open(disk: &LentDisk) -> Result<File, Failure> {
    let deadline = Instant::now() + APPEARS_WITHIN;
    loop {
        if let Some(opened) = find_disk(disk.slot).and_then(|node| open_named(&node, disk)) {
            return Ok(opened);
        }
        if Instant::now() > deadline {
            return Err(failure(FailureKind::Other, "the disk with the uploaded bytes did not appear; try again"));
        }
        // Polls, because the agent does not listen to bus events.
        std::thread::sleep(LOOK_EVERY);
    }
}

/// The disk, if it is this one. It may also be the one before it, which the kernel is removing, or not yet readable.
fn open_named(node: &Path, disk: &LentDisk) -> Option<File> {
    // Without the page cache, which would read more than this.
    let mut file = File::options().read(true).custom_flags(libc::O_DIRECT).open(node).ok()?;
    let mut memory = vec![0; 2 * LentDisk::BLOCK];
    let start = memory.as_ptr().align_offset(LentDisk::BLOCK);
    let block = &mut memory[start..start + LentDisk::BLOCK];
    file.read_exact(block).ok()?;
    (block == disk.header()).then_some(file)
}
