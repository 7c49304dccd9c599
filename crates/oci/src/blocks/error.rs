//! Why a file system cannot be written.

use std::io;

#[derive(Debug, thiserror::Error)]
pub enum Ext4Error {
    #[error("the image does not fit on a disk of {disk_mib} MiB; give the template a larger disk")]
    DiskTooSmall { disk_mib: u32 },
    #[error("the disk's size is {disk_mib} MiB; it must be between {least} and {most} MiB", least = super::Geometry::LEAST_MIB, most = super::Geometry::MOST_MIB)]
    BadSize { disk_mib: u32 },
    #[error("a file of {size} bytes is larger than ext4 allows")]
    FileTooLarge { size: u64 },
    #[error("the extended attributes of a file do not fit into one block of ext4")]
    XattrsTooLarge,
    #[error("cannot write the file system: {0}")]
    Write(#[from] io::Error),
}
