//! Disks by their address on the SCSI bus, where the host plugs them in.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

const SCSI_DEVICES: &str = "/sys/bus/scsi/devices";

/// The device node of the disk with this address, once the kernel has probed it.
pub fn find_disk(slot: u32) -> Option<PathBuf> {
    let address = format!(":0:{slot}:0");
    let device = fs::read_dir(SCSI_DEVICES).ok()?.flatten().find(|entry| {
        let name = entry.file_name();
        name.to_str().is_some_and(|name| !name.starts_with("target") && name.ends_with(&address))
    })?;
    let name = fs::read_dir(device.path().join("block")).ok()?.flatten().next()?.file_name();
    let node = Path::new("/dev").join(name);
    fs::metadata(&node).is_ok_and(|node| node.file_type().is_block_device()).then_some(node)
}
